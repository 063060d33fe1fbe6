"""Fresh inputs for every worker in every restart, drawn from the pristine entry with secret seeds and used once.

The worker that draws them answers timed inputs, too, once all is timed: no other has to be started for that.

Where workers can leave files for each other (`local` shares /tmp and /dev/shm), a worker with the same inputs could
read results instead of computing them. The worker that draws is frozen while others are timed, and builds the model
only if the entry makes its inputs from it. Large inputs are sealed so that they can be loaded before they are timed
(`sandbox/guest/seal.py`).
"""

from __future__ import annotations

import math
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.contract import WouldNotFreeze
from tools.errors import WorkloadError
from tools.judging.long_use import OtherSize, other_sizes
from tools.judging.script import POSITIVE_63, Case, Script
from tools.judging.worker import Build, Setting, Worker, WorkerFault, blamed_on
from tools.judging.workload import Workload

AT_ONCE = 16  # inputs drawn per request
SEALED_BYTES = {"cuda": 4 << 20}
"""From here on loading takes a millisecond and more, which on a GPU may be longer than a call: on a CPU it is not."""


@dataclass(frozen=True)
class Input:
    """A file that is opened with its key where it has one."""

    path: Path
    key: int | None

    @property
    def is_sealed(self) -> bool:
        return self.key is not None


Inputs = Sequence[Sequence[Input]]  # by case
DrawInputs = Callable[[Sequence[str]], Mapping[str, Inputs]]
"""New inputs for each of these sides, enough for one restart, as files; the caller's to take away."""


def draw(reference: Worker, into: Path, case: Case, seed: int, variant: str = "") -> Path:
    """One input of the pristine entry, as a file that only we can change. Raises: WorkerFault."""
    return draw_many(reference, {into: seed}, case, variant)[0]


def draw_many(
    reference: Worker, seeds: Mapping[Path, int], case: Case, variant: str = "", keys: Mapping[Path, int] | None = None
) -> list[Path]:
    """The same for many files, by their seeds; several at a time, because asking takes longer than drawing. Those that
    have keys are sealed.
    """
    wanted = [*seeds]
    how: dict[str, Any] = {"phase": case.phase, "shape": dict(case.shape), "variant": variant}
    for start in range(0, len(wanted), AT_ONCE):
        asked = {str(reference.saved(into.name)): into for into in wanted[start : start + AT_ONCE]}
        files = {name: seeds[into] for name, into in asked.items()}
        sealed = {name: keys[into] for name, into in asked.items() if keys and into in keys}
        reference.ask("draw", timeout_s=len(files) * reference.timeout_s, seeds=files, keys=sealed, **how)
        for into in asked.values():
            reference.take(into.name, into)
    return wanted


@dataclass
class InputSupply:
    """Draws the inputs of each restart; `needed` says how many of a case a side uses. To be closed.

    Its worker starts with the first check and stays, so that nothing later has to wait for it; it is awake only while
    it draws or answers.
    """

    setting: Setting
    workload: Workload
    pristine: Build
    folder: Path
    needed: Callable[[Case], int]
    rng: random.Random = field(default_factory=random.SystemRandom)
    _reference: Worker | None = None
    _drawn: int = 0
    _loaded: bool = False
    _sizes: list[OtherSize] | None = None
    _builds: bool = False  # whether the entry makes its inputs from what build() left behind
    _lock: threading.Lock = field(default_factory=threading.Lock)  # several checks may be made at once

    @contextmanager
    def opened(self) -> Iterator[DrawInputs]:
        """Raises: WorkloadError, WouldNotFreeze."""
        with blamed_on(self.setting.entry):
            if self._reference is None:
                timeout_s = self.setting.check_timeout_s
                self._reference = Worker(self.setting, self.pristine, "reference", timeout_s=timeout_s)
                self._drawn, self._loaded, self._builds = 0, False, False
            try:
                yield self.draw
            except (WorkerFault, WouldNotFreeze):
                self.close()
                raise

    @contextmanager
    def answering(self) -> Iterator[Worker]:
        """Its worker, which may build the model. Raises: WorkloadError."""
        with blamed_on(self.setting.entry):
            try:
                with self.opened():
                    reference = self._woken()
            except WouldNotFreeze:  # another one need not be woken
                with self.opened():
                    reference = self._woken()
            try:
                yield reference
            except BaseException:
                self.close()
                raise
            try:
                reference.ask("release")
                if self._builds:
                    reference.ask("build", **self.workload.build_arguments(reference))
                reference.process.freeze()
            except (WorkerFault, WouldNotFreeze):  # what was asked of it is known
                self.close()

    def close(self) -> None:
        if self._reference is not None:
            self._reference.close()
            self._reference = None

    def draw_script(self, script: Script, folder: Path) -> list[Path]:
        """One input for each that the script names. Raises: WorkloadError."""
        with self._lock:
            stood_by = self._reference is not None
            try:
                return self._draw_script(script, folder)
            except (WorkloadError, WouldNotFreeze):
                if not stood_by:
                    raise
            return self._draw_script(script, folder)  # a fault of the device may have taken along what stood by

    def _draw_script(self, script: Script, folder: Path) -> list[Path]:
        with self.opened():
            reference = self._woken()
            paths = [
                draw(reference, folder / f"script-{index}", each.case, each.seed, each.variant)
                for index, each in enumerate(script.draws)
            ]
            reference.process.freeze()
        return paths

    def other_sizes(self) -> list[OtherSize]:
        """One input of each, the same for all. Raises: WorkerFault, WouldNotFreeze."""
        if self._sizes is None:
            reference, folder = self._woken(), self.folder / "sizes"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sizes = other_sizes(
                self.workload,
                lambda each, number: draw(
                    reference, folder / f"{number}", each.case, self.rng.randrange(1 << 31), each.variant
                ),
            )
            reference.process.freeze()
        return self._sizes

    def draw(self, sides: Sequence[str]) -> dict[str, Inputs]:
        """Raises: WorkerFault, WouldNotFreeze (the reference worker, beside what is timed)."""
        assert self._reference is not None
        self._drawn += 1
        folder = self.folder / f"{self._reference.root.name}-{self._drawn}"
        folder.mkdir(mode=0o700, parents=True)
        found: dict[str, Inputs] = {}
        try:
            self._woken()
            for number, side in enumerate(sides):
                (folder / f"{number}").mkdir()
                found[side] = self.draw_all(self._reference, folder / f"{number}")
            self._reference.process.freeze()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return found

    def draw_all(self, reference: Worker, folder: Path) -> Inputs:
        """What one side needs for one restart."""
        found = []
        for number, case in enumerate(self.workload.cases):
            seeds = {folder / f"{number}-{index}": self.rng.randrange(1 << 31) for index in range(self.needed(case))}
            sealed = case.input_bytes >= SEALED_BYTES.get(self.workload.device, math.inf)
            keys = {path: self.rng.randrange(-POSITIVE_63, POSITIVE_63) for path in seeds} if sealed else {}
            paths = draw_many(reference, seeds, case, keys=keys)
            found.append([Input(path, keys.get(path)) for path in paths])
        return found

    def _woken(self) -> Worker:
        """The entry is loaded when it is first needed: the worker starts beside the first workers to be timed."""
        reference = self._reference
        assert reference is not None
        reference.process.thaw()
        if self._loaded:
            return reference
        self._loaded = True
        reference.ask("describe", **self.workload.drawing_arguments)
        try:
            first = self.folder / f"{reference.root.name}-first"
            first.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draw(reference, first, self.workload.cases[0], 0).unlink()
        except WorkerFault as fault:
            if fault.ended is not None:
                raise
            self._builds = True
            reference.ask("build", **self.workload.build_arguments(reference))
        return reference
