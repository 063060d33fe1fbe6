"""The workload of a target, as `inspection.py` finds it: cases, further questions to a candidate, rules."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tools.judging.correctness import Rules
from tools.judging.described import AsBuilt
from tools.judging.script import SEEDS, Asks, Case, Script, write_script
from tools.judging.worker import Worker

MEMORY_IN_USE = 0.85  # of the device's memory; the rest is for contexts, fragments and what compiled code adds
INPUTS = 3  # of each case


class Reveals(Protocol):
    """Shows our files to one process; a worker is one."""

    def reveal(self, source: Path) -> str: ...


@dataclass(frozen=True)
class Workload:
    """The workload of a target, as the pristine entry declares it and as it was seen to behave."""

    form: str
    mode: str
    cases: tuple[Case, ...]  # the cheapest first
    unseen: tuple[Case, ...]
    variants: Mapping[str, tuple[str, ...]]  # by phase
    transforms: tuple[str, ...]
    constants: tuple[Any, ...]
    rules: Rules
    is_module: bool
    precision: str  # of the truth: "float64", "float32", or "" for the target's own
    init: Path | None
    states: Mapping[str, Path]
    environment: Mapping[str, Any]
    inputs: Sequence[Sequence[Path]] = ()  # `INPUTS` of each case, to fill caches and to look at; none is timed
    peak_bytes: int = 0  # of the device's memory, for one copy in the target's own precision
    recipe: Mapping[str, Any] | None = None  # of an observed script, see `Recipe`
    looked_up: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)  # by phase, see `LookedUp`
    gradient_bytes: int | None = None  # of device memory, as `peak_bytes`, where gradients flow; None where none do
    seeds: int = SEEDS  # inputs of the cheapest case, at least
    has_choices: bool = False  # whether it answers in integers that it chooses by values which can be seen
    has_threads: bool = False  # whether two may call it at once
    refused: Sequence[str] = ()  # variants of the cheapest case that the original raises at
    as_built: AsBuilt | None = None  # in another process than any that is judged
    not_asked: Sequence[str] = ()  # of what is asked of others: what the original does not answer
    without_effect: Sequence[str] = ()  # weights of which no result depends in the cheapest case
    notes: Sequence[str] = ()  # what a person should know of how the entry was read

    def fits(self, copies: int, peak_bytes: int = 0) -> bool:
        """Whether that many workers have room on the device side by side."""
        device_bytes = int(self.environment.get("gpu_memory_bytes") or 0)
        return not device_bytes or copies * max(peak_bytes, self.peak_bytes) < MEMORY_IN_USE * device_bytes

    def other_roundings(self, reference: Worker) -> Iterator[dict[str, Any]]:
        """Arguments of `precision` by which the original answers as it might have: what it errs once is one of many.

        Raises: WorkerFault.
        """
        if self.precision and self.device == "cuda" and reference.ask("tf32").get("allowed") is True:
            yield {"name": self.precision, "how": "tf32"}
        yield {"how": "shaken"}

    @property
    def device(self) -> str:
        return str(self.environment.get("device", "cpu"))

    def script(self, rng: random.Random) -> Script:
        asked = self.cases, self.unseen, self.variants, self.transforms
        script, cheap = write_script(*asked, bool(self.states), rng, self.seeds), self.cases[0]
        last: list[tuple[Asks, str, Case, str]] = []
        if self.gradient_bytes is not None:
            last.append(("gradients", "gradients", cheap, ""))
        if self.has_choices:
            last.append(("choices", "values behind integers", cheap, ""))
        if self.has_threads:
            last.append(("threads", "two threads", cheap, ""))
        last += [("refusal", f"{name} values", cheap, name) for name in self.refused]
        if self.refused:
            last.append(("results", "after what it refuses", cheap, ""))
        return script.then(last, rng)

    def build_arguments(self, showing: Reveals) -> dict[str, Any]:
        """Arguments of the request to build, with files revealed by `showing`."""
        init = None if self.init is None else showing.reveal(self.init)
        return {"mode": self.mode, "init": init, **self.describe_arguments}

    @property
    def describe_arguments(self) -> dict[str, Any]:
        """Of the request to describe, to a worker that is to find the same cases."""
        return {} if self.recipe is None else {"recipe": self.recipe}

    @property
    def drawing_arguments(self) -> dict[str, Any]:
        """The same, to one that is to draw inputs."""
        return {**self.describe_arguments, "rows": {phase: [*rows] for phase, rows in self.looked_up.items()}}

    def staged(self, showing: Reveals) -> list[dict[str, Any]]:
        """The cases as a guest stages them, each with its first inputs."""
        return [
            {"path": showing.reveal(path), "phase": case.phase, "constants": list(self.constants)}
            for (path, *_), case in zip(self.inputs, self.cases, strict=True)
        ]
