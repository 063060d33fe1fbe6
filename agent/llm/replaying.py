"""Answer from the recording of an earlier run instead of asking a model: the same turns in the same order, by step.

What is said to it is not looked at, because times and paths differ from run to run. Refuses to make an answer up.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.errors import RunDamaged
from agent.llm import Message, ModelError, Turn
from agent.llm.recording import EXCHANGES


class NotRecorded(ModelError):
    """A replay was asked for more than was recorded."""


class Recorded:
    """The turns of a recording, each given once."""

    def __init__(self, turns: dict[str, list[Turn]]) -> None:
        self._turns = turns

    @classmethod
    def read(cls, place: Path) -> Recorded:
        """Of a run's folder, or a file. Raises: RunDamaged."""
        file = place / EXCHANGES if place.is_dir() else place
        turns: dict[str, list[Turn]] = defaultdict(list)
        try:
            for line in file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                turns[str(row["step"])].append(Turn.model_validate(row["turn"]))
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            raise RunDamaged(f"{file} is no recording of exchanges with a model: {error}") from error
        return cls(turns)

    def holds(self, ending: str) -> bool:
        """Whether there is a conversation whose name ends so."""
        return any(name.endswith(ending) for name in self._turns)

    def chat(self, step: str) -> RecordedChat:
        return RecordedChat(step, self._turns.get(step, []))


class RecordedChat:
    """A `Chat` for one step."""

    def __init__(self, step: str, turns: list[Turn]) -> None:
        self._step, self._turns = step, turns

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], most_tokens: int | None = None) -> Turn:
        """Raises: NotRecorded."""
        if not self._turns:
            raise NotRecorded(f"the recording holds nothing more of {self._step}")
        return self._turns.pop(0)
