"""One reference worker that answers questions about an entry: which inputs its model takes, and with what."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.judging import accuracy, tensors
from tools.judging.accuracy import has_numbers
from tools.judging.correctness import Rules
from tools.judging.described import Answer, AsBuilt, Memory, Refused
from tools.judging.script import ROWS_APART, STRIDED, Asks, Case, Draw
from tools.judging.tensors import Leaf, Saved
from tools.judging.worker import Worker, WorkerFault

TRIES = 8  # of seeds, until the original answers: values may hang together, as lengths that add up do
RESULT_SHARE = 1 / 8  # of a worker's memory: some are held here at once, in float64


class Inspection:
    """One reference worker that answers all questions about the entry. To be closed where it may begin again."""

    def __init__(self, worker: Worker, keep: Path, constants: Sequence[Any] = (), mode: str = "inference") -> None:
        self.worker, self.keep, self.constants, self.mode = worker, keep, [*constants], mode
        self.recipe: dict[str, Any] | None = None
        self.looked_up: dict[str, list[tuple[int, int]]] = {}  # by phase, see `LookedUp`
        self.files, self.is_changed = 0, False

    def begin_again(self) -> None:
        """With a worker in the place of one that has ended. Raises: WorkerFault."""
        self.close()
        self.worker = Worker(self.worker.setting, self.worker.build, "reference")
        self.worker.ask("describe", recipe=self.recipe, rows=self.looked_up)
        self.worker.ask("build", mode=self.mode)

    def close(self) -> None:
        self.worker.close()

    def run_once(self, case: Case, seed: int, variant: str = "") -> tuple[Saved, float]:
        """Draw, stage, call and save; the result and the seconds of the call."""
        drawn = self.draw(case, seed, variant)
        elapsed = self.call(drawn, case, Draw(case, seed, variant).how)
        out = drawn.with_suffix(".out")
        self.worker.ask("save", path=str(out))
        saved, most_bytes = tensors.read(out), self.worker.setting.limits.memory_bytes
        if most_bytes is not None and saved.nbytes > RESULT_SHARE * most_bytes:
            raise WorkerFault("out_of_memory", f"a result of {saved.nbytes >> 20} MiB is too large to be compared here")
        return saved, elapsed

    def call(self, drawn: Path, case: Case, how: str = "fresh") -> float:
        """Stage and call; the seconds of the call."""
        self.worker.ask("stage", path=str(drawn), how=how, constants=self.constants, phase=case.phase)
        start = time.perf_counter()
        self.worker.ask("call", key=1)
        return time.perf_counter() - start

    def draw(self, case: Case, seed: int, variant: str = "") -> Path:
        """Where the worker has it."""
        self.files += 1
        drawn = self.worker.saved(f"i{self.files}.in")
        how: dict[str, Any] = {"phase": case.phase, "shape": dict(case.shape), "variant": variant}
        is_same = self.worker.ask("draw", seeds={str(drawn): seed}, **how).get("same")
        self.is_changed = not is_same or Draw(case, seed, variant).how in (STRIDED, ROWS_APART)
        return drawn

    def changes(self, case: Case, seed: int, variant: str) -> bool:
        """Whether a variant makes anything of the arguments another."""
        self.draw(case, seed, variant)
        return self.is_changed

    def take(self, drawn: Path) -> Path:
        """As one of our files."""
        return self.worker.take(drawn.name, self.keep / drawn.name)

    def possible(self, case: Case, seed: int, variant: str = "") -> bool:
        """Whether the pristine model answers, with numbers: some may be infinite, as masked ones are."""
        return self.answer(case, seed, variant) is not None

    def possible_seed(self, case: Case, rng: random.Random, variant: str = "") -> int | None:
        """One with which the pristine model answers; None where a few do not. Raises: WorkerFault."""
        seed, _ = self.answered(case, rng, variant) or (None, None)
        return seed

    def answered(self, case: Case, rng: random.Random, variant: str = "") -> tuple[int, Saved] | None:
        """The same, with its answer."""
        seeds = (rng.randrange(1 << 31) for _ in range(TRIES))
        answers = ((seed, self.answer(case, seed, variant)) for seed in seeds)
        return next(((seed, answer) for seed, answer in answers if answer is not None), None)

    def gradient_bytes(self, case: Case, rng: random.Random) -> int | None:
        """The most device memory held until gradients were there; None where the original answers with none."""
        if not self._numbers(case, rng, "gradients"):
            return None
        return self.worker.ask_for(Memory, "memory").peak_bytes

    def has_choices(self, case: Case, rng: random.Random) -> bool:
        """Whether the values from which a call chooses integers can be seen, and are numbers."""
        return bool(self._numbers(case, rng, "choices"))

    def _numbers(self, case: Case, rng: random.Random, asks: Asks) -> Sequence[Leaf]:
        """What is asked for of a new input; empty where the original does not answer, or without a number."""
        drawn = self.draw(case, rng.randrange(1 << 31))
        out = drawn.with_suffix(".out")
        try:
            self.worker.ask("stage", path=str(drawn), constants=self.constants, phase=case.phase)
            self.worker.ask("call_plainly", key=1, asks=asks)
            self.worker.ask("save", path=str(out))
        except WorkerFault as fault:
            if not fault.survived:
                self.begin_again()
            return ()
        leaves = tensors.read(out).leaves
        return leaves if all(map(has_numbers, leaves)) else ()

    def answers_two_threads(self, case: Case, rng: random.Random, rounds: int) -> bool:
        """Whether the pristine model gives two that call it at once what it gives each alone."""
        seeds = [rng.randrange(1 << 31) for _ in range(2)]
        try:
            alone = [leaf for seed in seeds for leaf in 2 * self.run_once(case, seed)[0].leaves]
            for seed in seeds:
                drawn = self.draw(case, seed)
                self.worker.ask("stage", path=str(drawn), constants=self.constants, phase=case.phase)
            self.worker.ask("call_together", key=1, rounds=rounds)
            out = drawn.with_suffix(".out")
            self.worker.ask("save", path=str(out))
        except WorkerFault as fault:
            if fault.kind in ("forged_reply", "interfered"):
                raise
            if not fault.survived:
                self.begin_again()
            return False
        found = tensors.read(out).leaves
        same = [leaf.shape for leaf in found] == [leaf.shape for leaf in alone]
        return same and not any(map(accuracy.fails, found, alone, alone))

    def writes_state(self, case: Case, rng: random.Random) -> bool:
        """Whether a call of the module leaves other numbers in its state dict."""
        before = self.worker.ask_for(AsBuilt, "as_built", key=1)
        self.run_once(case, rng.randrange(1 << 31))
        return self.worker.ask_for(AsBuilt, "as_built", key=1) != before

    def refuses(self, case: Case, seed: int, variant: str) -> bool:
        """Whether the pristine model raises at such arguments, and goes on. Raises: WorkerFault."""
        drawn = self.draw(case, seed, variant)
        if not self.is_changed:
            return False
        self.worker.ask("stage", path=str(drawn), constants=self.constants, phase=case.phase)
        try:
            return bool(self.worker.ask_for(Refused, "refused").raised)
        except WorkerFault as fault:
            if fault.survived:
                raise
            self.begin_again()
            return False

    def is_like_itself(self, saved: Saved, case: Case) -> bool:
        """Whether the entry's own compare() takes an answer for itself."""
        both = dict.fromkeys(("candidate", "reference"), str(saved.path))
        try:
            return self.worker.ask_for(Answer, "compare", phase=case.phase, **both).passed
        except WorkerFault as fault:
            if not fault.survived:
                self.begin_again()
            return False

    def answer(self, case: Case, seed: int, variant: str) -> Saved | None:
        """What the pristine model answers; None where it raises, or answers with no numbers. Raises: WorkerFault."""
        try:
            saved, _ = self.run_once(case, seed, variant)
        except WorkerFault as fault:
            if fault.kind == "device_failed":  # of an index, most likely, that is out of bounds
                self.begin_again()
            elif not fault.survived:
                raise
            return None
        expected = Draw(case, seed, variant).has_numbers
        return saved if not expected or all(map(has_numbers, saved.leaves)) else None


def answers(found: Inspection, case: Case, rules: Rules, seeds: Sequence[int], variant: str = "") -> list[Saved]:
    """What the rule compares of the results for these seeds."""
    return [compared(found, found.run_once(case, seed, variant)[0], case, rules) for seed in seeds]


def compared(found: Inspection, saved: Saved, case: Case, rules: Rules) -> Saved:
    """What the rule compares of a result."""
    if not rules.outputs:
        return saved
    into = saved.path.with_suffix(".selected")
    found.worker.ask("select", source=str(saved.path), path=str(into), phase=case.phase)
    return tensors.read(into)
