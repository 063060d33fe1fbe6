"""Statements that only build tensors: what each is made from, and which of them are built once, together.

Does not decide whether they may be: that is known where they are found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import libcst as cst

from tools.rewrite.reading.analysis import Env


@dataclass
class Group:
    """Statements (or one expression) that can be built once, and the lines they stand on."""

    statements: Sequence[cst.SimpleStatementLine]
    names: list[str]
    lines: tuple[int, int]
    env: Env
    expression: cst.BaseExpression | None = None
    removable: Sequence[cst.SimpleStatementLine] = ()
    device: cst.Attribute | None = None
    """Of the tensor that it is an index of, where it goes there from the host."""

    cloned: bool = False
    """Whether each call gets one of its own, because other code may change it."""
    made: Sequence[str] = ()
    """Names that the statements of an expression give."""

    def is_on(self, lines: Collection[int]) -> bool:
        return is_on(self.lines, lines)

    @property
    def title(self) -> str:
        return ", ".join(self.names or self.made) or "an expression"


@dataclass
class Slices:
    """Of the statements of a block that only build tensors, by index."""

    needs: dict[int, set[int]] = field(default_factory=dict)
    """The slice that makes it: itself, and all that it is made from."""
    names: dict[int, list[str]] = field(default_factory=dict)
    """What it makes."""
    used_at: dict[int, int] = field(default_factory=dict)
    """The first statement of another kind that reads it, other than in an expression that is built once itself."""
    within: list[tuple[Group, set[int]]] = field(default_factory=list)
    """Such expressions, and what they are made from."""

    def merged(self) -> list[set[int]]:
        """Statements that share work and are used only after the last of them belong together."""
        merged: list[set[int]] = []
        for index in sorted(self.used_at):
            for other in merged:
                shared = self.needs[index] & set().union(*(self.needs[o] for o in other))
                if shared and all(self.used_at[o] > index for o in other):
                    other.add(index)
                    break
            else:
                merged.append({index})
        return merged

    def read_within(self) -> set[int]:
        return set().union(*(needed for _, needed in self.within))

    def left_over(self) -> set[int]:
        """What only such expressions read."""
        within, live = self.read_within(), set[int]().union(*(self.needs[index] for index in self.used_at))
        others = set[int]().union(*(needed for user, needed in self.needs.items() if user not in within))
        return within - live - others


def is_on(lines: tuple[int, int], seen: Collection[int]) -> bool:
    return any(lines[0] <= line <= lines[1] for line in seen)
