"""What is measured once per run, kept in a file each, so that a resumed run does not measure it again.

Does not interpret: the report and the referee do.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TypeVar

from pydantic import BaseModel, Field

from agent.records.atomic_file import write_atomically
from tools.judging import accept
from tools.judging.comparison import Comparison
from tools.judging.own_tests import OwnTests
from tools.profiler.result import Profile

PLAIN = "default"  # the mode of torch.compile that one line has which says no more
RECORDING_MODES = ("reduce-overhead", "max-autotune")  # of torch.compile, where there are graphs to record
TUNED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
_Model = TypeVar("_Model", bound=BaseModel)


class SessionStart(BaseModel):
    """The A/A comparison, plain torch.compile against eager, by mode, and the target's own tests.

    `compile_screened` are modes that were measured later, in a few restarts: those that tune, on a CPU all of them. The
    best is measured in full beside the whole stack. One that failed has a reason.
    """

    aa: Comparison
    own_tests: OwnTests
    compile: dict[str, Comparison] = Field(default_factory=dict)
    compile_screened: dict[str, Comparison] = Field(default_factory=dict)
    compile_failed: dict[str, str] = Field(default_factory=dict)
    compile_endless: bool = False  # in each mode: it came to no end, or began again for each input
    compiling_s: float = 0.0  # that checking the original took, compiled by a change to its source; 0: it was not
    compile_breaks: int | None = None  # places where it gave up and went on in Python; None where that is not known

    @property
    def modes(self) -> set[str]:
        """The plain modes of torch.compile that were tried."""
        return {*self.compile, *self.compile_screened, *self.compile_failed}

    @property
    def compiled_restart_s(self) -> float:
        """Seconds of a restart of the original and its copy with all modes beside them."""
        return max(_restart_s(each) for each in (self.aa, *self.compile.values(), *self.compile_screened.values()))

    @property
    def plain_restart_s(self) -> float:
        """Seconds of a restart of the original and its copy alone, where some were."""
        longest = max(self.compile.values(), key=lambda each: each.wall_s, default=None)
        more = 0 if longest is None else len(self.aa.log_ratios) - len(longest.log_ratios)
        if longest is None or more <= 0:
            return _restart_s(self.aa)
        return (self.aa.wall_s - longest.wall_s) / more

    def best_compile(self) -> str:
        """The mode with the largest speedup over eager; empty when none was measured."""
        gains = self._gains()
        return max(gains, key=lambda mode: gains[mode], default="")

    def best(self) -> Comparison | None:
        """That mode beside eager, as far as it was measured."""
        return {**self.compile_screened, **self.compile}.get(self.best_compile())

    def compile_pays(self, delta: float) -> bool:
        """Whether plain torch.compile is shown to be faster than eager by more than `delta`."""
        best = self.best()
        return best is not None and best.interval().ci_low > 1 + delta

    def tuning_pays(self, delta: float) -> bool:
        """Whether a mode that tunes was faster than every one that does not by more than `delta`."""
        gains = self._gains()
        tuned = [gains.pop(mode) for mode in TUNED_MODES if mode in gains]
        return bool(tuned and gains) and max(tuned) - max(gains.values()) > delta

    def recording_pays(self, delta: float) -> bool:
        """Whether a mode that records calls as graphs, on a GPU, was faster than the default by more than `delta`."""
        gains = self._gains()
        plain, recorded = gains.get("default"), [gains[mode] for mode in RECORDING_MODES if mode in gains]
        return plain is not None and max(recorded, default=plain) - plain > delta

    def _gains(self) -> dict[str, float]:
        """The logarithm of each mode's speedup over eager."""
        return {mode: median(c.log_ratios) for mode, c in {**self.compile_screened, **self.compile}.items()}


def _restart_s(found: Comparison) -> float:
    return found.wall_s / max(1, len(found.log_ratios))


class Whole(BaseModel):
    """The final stack against the unmodified target, against the best plain torch.compile, and with default malloc."""

    top: str
    over_eager: Comparison
    over_compile: Comparison | None = None
    default_malloc: Comparison | None = None

    def counted(self) -> Comparison | None:
        """The stack over the original as it counts; None where the machine's pace may be all that was gained."""
        found = self.over_eager
        if not found.unsettled:
            return found
        counted = found.at_pace() if found.pace_us else None
        return counted if counted is not None and accept.holds(counted.log_ratios) else None


def _read(path: Path, form: type[_Model]) -> _Model | None:
    return form.model_validate_json(path.read_bytes()) if path.exists() else None


def keep(model: _Model, path: Path) -> _Model:
    write_atomically(path, model.model_dump_json(indent=1) + "\n")
    return model


def profile_file(run_dir: Path, name: str) -> Path:
    return run_dir / "profiles" / f"{name}.json"


def profile(run_dir: Path, name: str) -> Profile | None:
    return _read(profile_file(run_dir, name), Profile)


def session_start(run_dir: Path) -> SessionStart | None:
    return _read(run_dir / "session.json", SessionStart)


def keep_session(found: SessionStart, run_dir: Path) -> None:
    keep(found, run_dir / "session.json")


def keep_noise(run_dir: Path, aa: Comparison | None) -> None:
    """The noise floor that is judged by from now on: of a longer A/A comparison than the start of the run had."""
    known = session_start(run_dir)
    if known is not None and aa is not None and known.aa != aa:
        keep_session(known.model_copy(update={"aa": aa}), run_dir)


def whole(run_dir: Path) -> Whole | None:
    return _read(run_dir / "whole.json", Whole)
