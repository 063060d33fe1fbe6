"""Fresh inputs for every worker in every restart: drawn from the pristine entry with secret seeds, used once, gone.

Where workers can leave something for each other (`local` shares /tmp and /dev/shm), results that one has left would
answer another in no time if it got the same inputs, in the next restart or beside it. Does not build the model unless
the entry makes its inputs from it, or run beside what is timed: the worker that draws is frozen whenever it is not
asked. Large ones are sealed, so that a worker can take its time to load them (`sandbox/guest/seal.py`).
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.contract import WouldNotFreeze
from tools.errors import workload_error
from tools.judging.script import POSITIVE_63
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Case, Workload

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
Draw = Callable[[Sequence[str]], Mapping[str, Inputs]]
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
    wanted = [*seeds.items()]
    for start in range(0, len(wanted), AT_ONCE):
        asked = wanted[start : start + AT_ONCE]
        files = {str(reference.saved(into.name)): seed for into, seed in asked}
        sealed = {str(reference.saved(into.name)): keys[into] for into, _ in asked if keys and into in keys}
        timeout_s = len(files) * reference.timeout_s
        reference.ask(
            "draw",
            timeout_s=timeout_s,
            seeds=files,
            phase=case.phase,
            shape=dict(case.shape),
            variant=variant,
            keys=sealed,
        )
        for into, _ in asked:
            reference.take(into.name, into)
    return [*seeds]


@dataclass
class InputSupply:
    """Where the inputs of each restart come from; `needed` says how many of a case a side uses. To be closed.

    Its worker starts with the first comparison and stays, so that no later one has to wait for it.
    """

    setting: Setting
    workload: Workload
    pristine: Build
    folder: Path
    needed: Callable[[Case], int]
    rng: random.Random = field(default_factory=random.SystemRandom)
    _source: _Source | None = None

    @contextmanager
    def opened(self) -> Iterator[Draw]:
        """Raises: WorkloadError."""
        source = self._source = self._source or _Source(self, Worker(self.setting, self.pristine, "reference"))
        try:
            yield source
        except WorkerFault as fault:
            self.close()
            raise workload_error(fault.kind, fault.message, fault.where, self.setting.entry, fault.ended) from fault

    def close(self) -> None:
        if self._source is not None:
            self._source.reference.close()
            self._source = None

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


@dataclass
class _Source:
    """One worker that draws, awake only while it does."""

    supply: InputSupply
    reference: Worker
    drawn: int = 0

    @property
    def folder(self) -> Path:
        return self.supply.folder / f"{self.reference.root.name}-{self.drawn}"

    def __call__(self, sides: Sequence[str]) -> dict[str, Inputs]:
        self.drawn += 1
        self.folder.mkdir(mode=0o700, parents=True)
        try:
            return self._draw(sides)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _draw(self, sides: Sequence[str]) -> dict[str, Inputs]:
        with _standing_still():
            self.reference.process.thaw()
        if self.drawn == 1:
            self._load()
        found: dict[str, Inputs] = {}
        for number, side in enumerate(sides):
            (self.folder / f"{number}").mkdir()
            found[side] = self.supply.draw_all(self.reference, self.folder / f"{number}")
        with _standing_still():
            self.reference.process.freeze()
        return found

    def _load(self) -> None:
        """Not before it is needed: it starts beside the first workers to be timed."""
        self.reference.ask("describe")
        try:
            draw(self.reference, self.folder / "first", self.supply.workload.cases[0], 0)
        except WorkerFault as fault:
            if fault.ended is not None:
                raise
            # an entry may make its inputs from what build() left behind
            self.reference.ask("build", **self.supply.workload.build_arguments(self.reference))


@contextmanager
def _standing_still() -> Iterator[None]:
    """A reference that does not hold still interferes with what is timed beside it. Raises: WorkerFault."""
    try:
        yield
    except WouldNotFreeze as found:
        raise WorkerFault("interfered", str(found)) from found
