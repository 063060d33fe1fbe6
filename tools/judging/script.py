"""The script of calls a candidate must pass: the same for it and for the pristine model, step by step.

Written again with secret seeds for every candidate. The worker learns each input only when it is its turn. Refuses
to know what a right answer is: that is `correctness.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.judging.worker import Worker

SEEDS = 10
POSITIVE_63 = (1 << 63) - 1


@dataclass(frozen=True)
class Draw:
    """How an input is made from the pristine entry."""

    phase: str
    shape: Mapping[str, Any]
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


@dataclass
class _Writer:
    rng: random.Random
    draws: list[Draw] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def draw(self, case: Mapping[str, Any], shape: Mapping[str, Any] | None = None, variant: str = "") -> int:
        seed = self.rng.randrange(1 << 31)
        self.draws.append(Draw(case["phase"], dict(case["shape"] if shape is None else shape), seed, variant))
        return len(self.draws) - 1

    def seeds_of(self, cases: Sequence[Mapping[str, Any]]) -> set[int]:
        asked = [(case["phase"], dict(case["shape"])) for case in cases]
        return {draw.seed for draw in self.draws if not draw.variant and (draw.phase, draw.shape) in asked}

    def call(self, label: str, draw: int, how: str = "fresh") -> None:
        self.steps.append(Call(label, draw, how))


def write_script(
    cases: Sequence[Mapping[str, Any]],
    unseen: Sequence[Mapping[str, Any]],
    variants: Mapping[str, Sequence[str]],
    transforms: Sequence[str],
    states: bool,
    rng: random.Random,
) -> Script:
    """`cases` with the cheapest first; `unseen` are further shapes; `variants` are other values, by phase, all of which
    the cheapest case is asked and each other one of them; `states` says whether there is a second state dict,
    which needs a module, as `transforms` do.
    """
    w = _Writer(rng)
    cheap = cases[0]
    if states:
        w.steps.append(State("a"))
    w.call("first call", w.draw(cheap))
    if states:
        w.steps.append(State("b"))
    again = w.draw(cheap)
    w.call("same pointers, new data, second state dict", again, "inplace")
    w.call("repeat: same data, new pointers", again)
    w.steps.append(Poison())
    w.call("repeat: after poison", again, "inplace")
    for case in cases[1:]:
        w.call("declared case", w.draw(case))
        w.call("declared case", w.draw(case), "inplace")
    for case in unseen:
        w.call("unseen shape", w.draw(case))
    for variant in variants.get(cheap["phase"], ()):
        w.call(f"{variant} values", w.draw(cheap, variant=variant))
    for case in cases[1:]:  # one of them each, another for each candidate
        for variant in rng.sample([*variants.get(case["phase"], ())], 1 if variants.get(case["phase"]) else 0):
            w.call(f"{variant} values", w.draw(case, variant=variant))
    if states:
        w.steps.append(State("a"))
    # others may be left out, where the original does not answer them
    while len(w.seeds_of(cases)) < SEEDS - len(transforms):
        w.call("fresh seed", w.draw(cheap), rng.choice(["fresh", "inplace"]))
    elsewhere = [case for case in cases if case["phase"] != cheap["phase"]]
    for name in transforms:
        w.steps.append(Transform(name))
        w.call(f"after {name}", w.draw(cheap))
        for case in rng.sample(elsewhere, min(1, len(elsewhere))):
            w.call(f"after {name}", w.draw(case))
    return Script(tuple(w.draws), tuple(w.steps))


def play(
    worker: Worker,
    script: Script,
    inputs: Sequence[Path],
    states: Mapping[str, Path],
    constants: Sequence[Any],
    prefix: str,
    written: Collection[int] | None = None,
    took: Callable[[Draw, float], None] = lambda draw, seconds: None,
) -> Played:
    """Take a built worker through the script. `written` are the steps whose arguments are saved instead of all; then
    of the state only the buffers are, since calls seldom write to parameters.

    `took` is told what each usual input took when it was new, as long as the model is as it was built: seconds, with
    all that is compiled for it. Not the first after another state dict, for which what made constants of its weights
    has to compile. Raises: WorkerFault, what `took` raises.
    """
    outputs: dict[int, Path] = {}
    arguments: dict[int, Path] = {}
    digests: dict[int, tuple[int, str]] = {}
    first_call_s, new_state = 0.0, False
    new = {at for at, draw in enumerate(script.draws) if not draw.variant}
    for index, step in enumerate(script.steps):
        if isinstance(step, State):
            new_state = bool(outputs)
            worker.ask("load_state", path=worker.reveal(states[step.which]))
        elif isinstance(step, Transform):
            new.clear()
            worker.ask("transform", name=step.name)
        elif isinstance(step, Poison):
            worker.ask("poison")
        else:
            draw = script.draws[step.draw]
            worker.ask(
                "stage",
                path=worker.reveal(inputs[step.draw]),
                how=step.how,
                constants=list(constants),
                phase=draw.phase,
            )
            key = random.SystemRandom().randrange(-POSITIVE_63, POSITIVE_63)
            begun = time.monotonic()
            reply = worker.ask("call", key=key)
            call_s = time.monotonic() - begun
            first_call_s = first_call_s or call_s
            if step.draw in new and not new_state:
                took(draw, call_s)
            new, new_state = new - {step.draw}, False
            outputs[index] = worker.saved(f"{prefix}-{index}.out")
            worker.ask("save", path=str(outputs[index]))
            if written is None or index in written:
                arguments[index] = worker.saved(f"{prefix}-{index}.args")
                worker.ask("save_arguments", path=str(arguments[index]))
            digests[index] = (key, str(reply.get("digest")))
    state = None
    if states:
        state = worker.saved(f"{prefix}.state")
        worker.ask("save_state", path=str(state), **({} if written is None else {"buffers": True}))
    return Played(outputs, arguments, digests, state, first_call_s)
