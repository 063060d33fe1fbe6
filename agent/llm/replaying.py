"""Answer from the recording of an earlier run instead of asking a model: the same turns in the same order.

What is said to it is not looked at, because times and paths differ from run to run. Refuses to make an answer up.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.errors import RunDamaged
from agent.llm import Message, NotRecorded, ToolCall, Turn
from agent.llm.recording import EXCHANGES

_RESET = Turn(calls=[ToolCall(id="reset", name="reset", arguments="{}")], finish="tool_calls")
_ENDS = {"submit", "give_up"}


class Recorded:
    """The turns of a recording by the name of their conversation, each given once. `torn` is how many of its lines are
    none, as one that a killed process did not end.
    """

    def __init__(self, turns: dict[str, list[Turn]], torn: int = 0) -> None:
        self._turns, self.torn = turns, torn

    @classmethod
    def read(cls, place: Path) -> Recorded:
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

    @property
    def drafts(self) -> int:
        """How many conversations worked side by side."""
        numbers = [int(found[1]) for name in self._turns if (found := re.search(r"#(\d+)$", name))]
        return max([1, *numbers])

    def holds(self, ending: str) -> bool:
        """Whether there is a conversation whose name ends so."""
        return any(name.endswith(ending) for name in self._turns)

    def chat(self, name: str) -> RecordedChat:
        return RecordedChat(name, self._turns.get(name, []))


def _without_loose_ends(turns: list[Turn]) -> list[Turn]:
    """Up to the last that handed something in: what came after it was cut off, and done again when the run went on."""
    ends = [number for number, turn in enumerate(turns) if any(call.name in _ENDS for call in turn.calls)]
    return turns[: ends[-1] + 1] if ends else []


class RecordedChat:
    """A `Chat` for one conversation."""

    def __init__(self, name: str, turns: list[Turn]) -> None:
        self._name, self._turns = name, turns

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], most_tokens: int | None = None) -> Turn:
        """Raises: NotRecorded."""
        if not self._turns:
            raise NotRecorded(f"the recording holds nothing more of {self._name}")
        return self._turns.pop(0)
