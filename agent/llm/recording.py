"""Record every exchange with a model, one JSON object a line in the run's folder, and answer from such a recording.

The key is in none of them. A replay gives the same turns in the same order and never makes an answer up; what is said
to it is not compared, because times and paths differ from run to run.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.errors import RunDamaged
from agent.llm import Message, NotRecorded, ToolCall, Turn

EXCHANGES = "exchanges.jsonl"  # in a run's folder
_RESET = Turn(calls=[ToolCall(id="reset", name="reset", arguments="{}")], finish="tool_calls")
_ENDS = {"submit", "give_up"}


@dataclass
class ConversationLog:
    """One conversation, whose `messages` grow. A message is written once."""

    file: Path
    name: str
    messages: Sequence[Message]
    _written: int = 0

    def add(self, turn: Turn) -> None:
        """Write the messages since the last exchange, and the answer. Raises: OSError."""
        new = list(self.messages[self._written :])
        row = {"step": self.name, "before": self._written, "messages": new, "turn": turn.model_dump(mode="json")}
        self._written = len(self.messages) + 1  # the answer itself comes next in the conversation
        with self.file.open("ab+") as stream:
            if stream.tell() > 0:  # a process that was killed in the middle of a line leaves it open
                stream.seek(-1, os.SEEK_END)
                stream.write(b"" if stream.read(1) == b"\n" else b"\n")
            stream.write(json.dumps(row).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


@dataclass(frozen=True)
class RecordedTurns:
    """The turns of a recording by the name of their conversation, each given once. `torn` counts its unreadable lines,
    such as one that a killed process did not end.
    """

    turns: Mapping[str, list[Turn]]
    torn: int = 0

    @classmethod
    def read(cls, place: Path) -> RecordedTurns:
        """Of a run's folder, or a file. Raises: RunDamaged."""
        file = place / EXCHANGES if place.is_dir() else place
        turns: dict[str, list[Turn]] = defaultdict(list)
        torn = 0
        try:
            for line in file.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    torn += 1
                    continue
                name = str(row["step"])
                if ":" not in name and row["before"] == 0 and turns[name]:
                    turns[name] = [*_without_loose_ends(turns[name]), _RESET]
                turns[name].append(Turn.model_validate(row["turn"]))
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            raise RunDamaged(f"{file} is no recording of exchanges with a model: {error}") from error
        if torn and not turns:
            raise RunDamaged(f"{file} is no recording of exchanges with a model: no line of it can be read.")
        return cls(turns, torn)

    def chat(self, name: str) -> RecordedChat:
        return RecordedChat(name, self.turns.get(name, []))


def _without_loose_ends(turns: list[Turn]) -> list[Turn]:
    """Up to the last that handed something in: what came after it was cut off, and done again when the run went on."""
    ends = [number for number, turn in enumerate(turns) if any(call.name in _ENDS for call in turn.calls)]
    return turns[: ends[-1] + 1] if ends else []


@dataclass
class RecordedChat:
    """A `Chat` for one conversation."""

    name: str
    turns: list[Turn]

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        """Raises: NotRecorded."""
        if not self.turns:
            raise NotRecorded(f"the recording holds nothing more of {self.name}")
        return self.turns.pop(0)
