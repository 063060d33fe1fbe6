"""Every exchange with a model, one JSON object a line in the run's folder. The key is in none of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from agent.llm import Message, Turn

EXCHANGES = "exchanges.jsonl"  # in a run's folder


@dataclass
class Recording:
    """Of a message that is in the conversation already, only that it is there is written."""

    file: Path
    step: str
    _written: int = field(default=0)

    def add(self, messages: Sequence[Message], turn: Turn) -> None:
        """What was said since the last exchange, and the answer. Raises: OSError."""
        row = {
            "step": self.step,
            "before": self._written,
            "messages": list(messages[self._written :]),
            "turn": turn.model_dump(mode="json"),
        }
        self._written = len(messages) + 1  # the answer itself comes next in the conversation
        with self.file.open("ab+") as stream:
            stream.write(_line_end(stream) + json.dumps(row).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def _line_end(stream: BinaryIO) -> bytes:
    """What is missing of one: a process that was killed in the middle of a line leaves it open."""
    if stream.seek(0, os.SEEK_END) == 0:
        return b""
    stream.seek(-1, os.SEEK_END)
    return b"" if stream.read(1) == b"\n" else b"\n"
