"""The script of calls that a candidate and the pristine model answer, written for every candidate with secret seeds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.judging.tensors import Rows
from tools.plain_text import plain

SEEDS = 10
POSITIVE_63 = (1 << 63) - 1


@dataclass(frozen=True)
class Case:
    """One thing to judge: a phase and a shape. Cases are timed and reported apart and count by their geometric mean."""

    phase: str
    shape: Mapping[str, Any]
    work: Mapping[str, float] = field(default_factory=dict, compare=False)
    call_s: float = field(default=0.0, compare=False)  # a first, rough time of one call of the pristine callable
    input_bytes: int = field(default=0, compare=False)  # of one input, as a file

    @property
    def name(self) -> str:
        shape = plain(", ".join(f"{key}={value}" for key, value in self.shape.items()))
        return " ".join(part for part in (self.phase, f"({shape})" if shape else "") if part) or "call"


@dataclass(frozen=True)
class Draw:
    """How an input is made from the pristine entry."""

    case: Case
    seed: int
    variant: str = ""


@dataclass(frozen=True)
class State:
    which: str  # "a", the pristine state, or "b", a different one


@dataclass(frozen=True)
class Transform:
    name: str  # see Worker.op_transform in the guest


@dataclass(frozen=True)
class Poison:
    """Overwrite what was returned and what is free."""


@dataclass(frozen=True)
class Call:
    label: str  # what this call tests, for the evidence
    draw: int  # index of its input
    how: str = "fresh"  # "inplace": new data behind the pointers of the last call


Step = State | Transform | Poison | Call


@dataclass(frozen=True)
class Script:
    draws: tuple[Draw, ...]
    steps: tuple[Step, ...]

    def only(self, seeds: Sequence[int | None]) -> Script:
        """With these seeds of its inputs, and without the calls of those that have none."""
        at = {old: new for new, old in enumerate(index for index, seed in enumerate(seeds) if seed is not None)}
        draws = [replace(draw, seed=seed) for draw, seed in zip(self.draws, seeds, strict=True) if seed is not None]
        steps = [
            replace(step, draw=at[step.draw]) if isinstance(step, Call) else step
            for step in self.steps
            if not isinstance(step, Call) or step.draw in at
        ]
        return Script(tuple(draws), tuple(steps))

    @property
    def seeds(self) -> int:
        return len({draw.seed for draw in self.draws if not draw.variant})


@dataclass(frozen=True)
class Played:
    """What one worker saved while it played: outputs and arguments of each call, and the state at the end."""

    outputs: dict[int, Path]  # by index of the step
    arguments: dict[int, Path]
    digests: dict[int, tuple[int, str]]  # key and reply
    state: Path | None
    first_call_s: float  # with all that is compiled for it
    rows: dict[int, Rows] = field(default_factory=dict)  # of large outputs of the original: what was saved


def write_script(
    cases: Sequence[Case],
    unseen: Sequence[Case],
    variants: Mapping[str, Sequence[str]],
    transforms: Sequence[str],
    states: bool,
    rng: random.Random,
) -> Script:
    """`cases` with the cheapest first; `unseen` are further shapes; `variants` are other values, by phase, all of which
    the cheapest case is asked and each other one of them; `states` says whether there is a second state dict,
    which needs a module, as `transforms` do.
    """
    draws, steps, cheap = list[Draw](), list[Step](), cases[0]

    def draw(case: Case, variant: str = "") -> int:
        draws.append(Draw(case, rng.randrange(1 << 31), variant))
        return len(draws) - 1

    def call(label: str, draw: int, how: str = "fresh") -> None:
        steps.append(Call(label, draw, how))

    if states:
        steps.append(State("a"))
    call("first call", draw(cheap))
    if states:
        steps.append(State("b"))
    again = draw(cheap)
    call("same pointers, new data, second state dict", again, "inplace")
    call("repeat: same data, new pointers", again)
    steps.append(Poison())
    call("repeat: after poison", again, "inplace")
    for case in cases[1:]:
        call("declared case", draw(case))
        call("declared case", draw(case), "inplace")
    for case in unseen:
        call("unseen shape", draw(case))
    for variant in variants.get(cheap.phase, ()):
        call(f"{variant} values", draw(cheap, variant))
    for case in cases[1:]:  # one of them each, another for each candidate
        for variant in rng.sample([*variants.get(case.phase, ())], 1 if variants.get(case.phase) else 0):
            call(f"{variant} values", draw(case, variant))
    if states:
        steps.append(State("a"))
    # others may be left out, where the original does not answer them
    while len({each.seed for each in draws if not each.variant and each.case in cases}) < SEEDS - len(transforms):
        call("fresh seed", draw(cheap), rng.choice(["fresh", "inplace"]))
    elsewhere = [case for case in cases if case.phase != cheap.phase]
    for name in transforms:
        steps.append(Transform(name))
        call(f"after {name}", draw(cheap))
        for case in rng.sample(elsewhere, min(1, len(elsewhere))):
            call(f"after {name}", draw(case))
    return Script(tuple(draws), tuple(steps))
