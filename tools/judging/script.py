"""The script of calls that a candidate and the pristine model answer, written for every candidate with secret seeds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tools.judging.tensors import Rows
from tools.plain_text import plain

SEEDS = 10
FRESH = 2  # inputs more, before anything is done to the model
ROUNDS = 4  # calls of each of two threads
# of some weights, as programs make them, by what stands for it in the guest's states.py
CHANGES = {
    "data": "weights changed through .data",
    "numpy": "weights changed through NumPy",
    "step": "weights changed as by an optimizer",
    "memory": "weights moved and changed",
    "assign": "another state dict assigned",
    "enlarged": "all matrices made larger",
}
# see the guest's values.py, for these as well
OTHER_SIZES = (
    "one row",
    "three rows",
    "half as long",
    "twice as long",
    "four times as long",
    "of length one",
    "wider",
    "wider images",
)
STRIDED, ROWS_APART, OTHER_CONSTANTS = "strided", "rows apart", "other constants"
OTHER_TYPE, NOT_A_NUMBER = "another type", "not a number"
ROUGHLY = "roughly"  # said of values, which it leaves as they are: see `Draw.is_rough`
# of which what is compiled knows nothing
OTHER_FORMS = (*OTHER_SIZES, STRIDED, ROWS_APART, OTHER_TYPE, "masks of another type", "one more", "twice as many")
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
    variant: str = ""  # names of the guest's values.py

    @property
    def how(self) -> str:
        """To be staged."""
        return next((name for name in (STRIDED, ROWS_APART, OTHER_CONSTANTS) if name in self.variant), "fresh")

    @property
    def has_numbers(self) -> bool:
        """Whether what the original answers has numbers, too."""
        return NOT_A_NUMBER not in self.variant

    @property
    def is_rough(self) -> bool:
        """Whether rounding moves the original's own answer so much that, without a truth, no bound on it is known."""
        return ROUGHLY in self.variant

    @property
    def is_compiled(self) -> bool:
        """Whether it has the form that its case has: others are not compiled for."""
        return not any(name in self.variant for name in OTHER_FORMS)


@dataclass(frozen=True)
class State:
    which: str  # "a", the pristine state, or "b", a different one


@dataclass(frozen=True)
class Transform:
    name: str  # see Worker.op_transform in the guest
    seed: int = 0  # of which weights change; one that differs in the last bit changes the others


@dataclass(frozen=True)
class Poison:
    """Overwrite what was returned and what is free."""


# what a call gives, what goes back from it, what it chooses integers by, what two threads get, or what it raises
Asks = Literal["results", "gradients", "choices", "threads", "refusal"]


@dataclass(frozen=True)
class Call:
    label: str  # what this call tests, for the evidence
    draw: int  # index of its input
    how: str = "fresh"  # "inplace": new data behind the pointers of the last call; or as the draw says
    asks: Asks = "results"


Step = State | Transform | Poison | Call


@dataclass(frozen=True)
class Script:
    draws: tuple[Draw, ...]
    steps: tuple[Step, ...]

    def then(self, last: Sequence[tuple[Asks, str, Case, str]], rng: random.Random) -> Script:
        """With more questions in the end, since what a call keeps may go on with them: what is asked, its label, the
        case and a variant of it. Of two threads the other has the input of the first call.
        """
        draws = [Draw(case, rng.randrange(1 << 31), variant) for _, _, case, variant in last]
        at = len(self.draws)
        steps = [Call(label, at + index, asks=asks) for index, (asks, label, *_) in enumerate(last)]
        return Script((*self.draws, *draws), (*self.steps, *steps))

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


@dataclass
class Played:
    """What one worker saved while it played: outputs and arguments of each call, and the state at the end."""

    outputs: dict[int, Path]  # by index of the step
    arguments: dict[int, Path]
    digests: dict[int, tuple[int, str]]  # key and reply
    state: Path | None = None
    first_call_s: float = 0.0  # with all that is compiled for it
    rows: dict[int, Rows] = field(default_factory=dict)  # of large outputs of the original: what was saved
    raised: dict[int, list[str]] = field(default_factory=dict)  # where a refusal was asked for: classes, nearest first


def write_script(
    cases: Sequence[Case],
    unseen: Sequence[Case],
    variants: Mapping[str, Sequence[str]],
    transforms: Sequence[str],
    states: bool,
    rng: random.Random,
    seeds: int = SEEDS,
) -> Script:
    """`cases` with the cheapest first; `unseen` are further shapes; `variants` are other values, by phase, all of which
    its cheapest case is asked and each other one of them; `states` says whether there is a second state dict,
    which needs a module, as `transforms` do; the cheapest case is asked with at least so many `seeds`.
    """
    draws, steps, cheap = list[Draw](), list[Step](), cases[0]

    def draw(case: Case, variant: str = "") -> int:
        draws.append(Draw(case, rng.randrange(1 << 31), variant))
        return len(draws) - 1

    def call(label: str, draw: int, how: str = "") -> None:
        steps.append(Call(label, draw, how or draws[draw].how))

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
    for number, case in enumerate(cases[1:], 1):
        asked = [*variants.get(case.phase, ())]
        if case.phase in {each.phase for each in cases[:number]}:  # one of them, another for each candidate
            asked = rng.sample(asked, min(1, len(asked)))
        for variant in asked:
            call(f"{variant} values", draw(case, variant))
    fresh = seeds - len({each.seed for each in draws if not each.variant and each.case in cases}) - len(transforms) - 1
    for _ in range(max(FRESH, fresh)):  # of a model that nobody has changed, so that one that compiles again is seen
        call("fresh seed", draw(cheap), rng.choice(["fresh", "inplace"]))
    elsewhere = [case for case in cases if case.phase != cheap.phase]

    def change(name: str, seed: int, others: Sequence[Case]) -> None:
        steps.append(Transform(name, seed))
        call(f"after {CHANGES.get(name, name)}", draw(cheap), rng.choice(["fresh", "inplace"]))
        for case in rng.sample(others, min(1, len(others))):
            call(f"after {CHANGES.get(name, name)}", draw(case))

    written = [name for name in transforms if name in CHANGES]
    seed = 0
    for index, name in enumerate(written):  # of two in a row each changes what the other leaves
        seed = seed ^ 1 if index % 2 else rng.randrange(1 << 31)
        change(name, seed, elsewhere if name == written[-1] else [])
    if states:
        steps.append(State("a"))
    moved = [name for name in transforms if name not in CHANGES]
    call("fresh seed", draw(cheap))
    for name in moved:
        change(name, 0, elsewhere)
    return Script(tuple(draws), tuple(steps))
