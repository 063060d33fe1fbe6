"""What a profile said that each step could gain at most, against what was kept of it.

Refuses to call a ceiling too low by chance: it is passed when even the lower bounds of the gains are above it together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.reporting.report import Report


@dataclass(frozen=True)
class Gained:
    """By the changes that a step kept, together, each over the stack below it."""

    task: str
    step: str
    at_most: float
    median: float
    ci_low: float

    @property
    def passed(self) -> bool:
        return self.ci_low > self.at_most


def gained(task: str, report: Report) -> Iterator[Gained]:
    """Of the steps that kept something and had a ceiling."""
    for step in report.steps:
        # what several steps gained together is the gain of none of them
        own = [each for each in report.kept if each.step == step.name and not each.together_with]
        kept = [each.speedup for each in own if each.speedup is not None]
        if kept and step.at_most is not None:
            median, low = (math.prod(values) for values in ([s.median for s in kept], [s.ci_low for s in kept]))
            yield Gained(task, step.name, step.at_most, median, low)


def table(found: Iterable[Gained]) -> str:
    rows = [
        f"| {each.task} | {each.step} | {each.at_most:.2f}× | {each.median:.2f}× (at least {each.ci_low:.2f}) "
        f"| {'**passed**' if each.passed else 'held'} |"
        for each in found
    ]
    head = ["| task | step | could gain at most | kept gains | the ceiling |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows]) if rows else ""
