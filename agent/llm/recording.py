"""Every exchange with a model, one JSON object a line in the run's folder. The key is in none of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
        row = {"step": self.step, "before": self._written, "messages": list(messages[self._written :]),
               "turn": turn.model_dump(mode="json")}  # fmt: skip
        self._written = len(messages) + 1  # the answer itself comes next in the conversation
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
