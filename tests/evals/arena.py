"""Where cheats meet the referee: one target, the real parts, and plans small enough for a test.

The noise floor is fixed and wide, so that what is kept here gains by construction and no noise can look like it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import evals
from sandbox.contract import Sandbox
from tests.forking import ForkingSandbox, unwatched_packages
from tools.integrity import hash_tree
from tools.judging import comparison
from tools.judging.accept import NoiseFloor, SpeedupInterval
from tools.judging.check import Checked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee
from tools.judging.verdict import Verdict
from tools.judging.worker import Build

RED_TEAM = Path(evals.__file__).parent / "red_team"


def noise(delta: float) -> NoiseFloor:
    return NoiseFloor(delta, SpeedupInterval(median=1.0, ci_low=1.0, ci_high=1.0, restarts=12, noise_floor=0.0), True)


@dataclass
class Arena:
    """A referee on the red team's target. `weakened` gives the same with a guard taken away."""

    referee: Referee
    trees: Path
    incumbent: Build

    @classmethod
    def open(cls, folder: Path, python: str, rows: int = 32, sandbox: Sandbox | None = None) -> Arena:
        """`rows` says how long a call takes: 32 about 1 ms.

        Without a `sandbox`, workers are forks under our user, on CPUs that nothing enforces: what a sandbox holds would
        be guards more.
        """
        scratch, trees = folder / "scratch", folder / "trees"
        scratch.mkdir()
        pristine = shutil.copytree(RED_TEAM / "target", trees / "pristine")
        replace_once(pristine / "bench.py", 'return [{"rows": 32}]', f'return [{{"rows": {rows}}}]')
        with unwatched_packages():
            sandbox = sandbox or ForkingSandbox(python)
            referee = open_referee(pristine, "bench.py", python=python, sandbox=sandbox, scratch=scratch)
        referee.noise = noise(0.25)
        # each of these would be a guard more in each test
        referee.workload = replace(referee.workload, gradient_bytes=None, has_threads=False, as_built=None, refused=())
        checked = referee.check_pristine()
        return cls(referee, trees, checked.build)

    def tree(self, cheat: str) -> Path:
        """The candidate's tree: the target with the files of one cheat over it."""
        tree = self.trees / cheat
        if not tree.exists():
            shutil.copytree(self.referee.pristine.tree, tree)
            shutil.copytree(RED_TEAM / "cheats" / cheat, tree, dirs_exist_ok=True)
        return tree

    def candidate(self, cheat: str) -> Build:
        tree = self.tree(cheat)
        return Build(hash_tree(tree)[:16], tree)

    def appended(self, name: str, text: str) -> Build:
        """The target with this at the end of its model's file."""
        tree = shutil.copytree(self.incumbent.tree, self.trees / name)
        with (tree / "model.py").open("a") as model:
            model.write(text)
        return Build(name, tree)

    def check(self, cheat: str) -> Finding:
        """Only whether it is right."""
        return self.referee.check(self.candidate(cheat)).finding

    def judge(self, cheat: str) -> Verdict:
        """All of it: right, faster, and right when it was timed."""
        return self.referee.judge(self.candidate(cheat), self.incumbent)[0]

    def time(self, cheat: str) -> Verdict:
        """What follows a passed check, for a cheat that another test has shown to pass it."""
        return self.referee.time(Checked(Finding(None, ""), self.candidate(cheat)), self.incumbent)

    def with_guest(self, folder: Path, changes: dict[str, list[tuple[str, str]]]) -> Arena:
        """The same with another guest: in each file named, each text replaced by another."""
        guest = folder / "weakened-guest"
        shutil.copytree(self.referee.setting.guest, guest)
        guest.chmod(0o755)
        for name, replacements in changes.items():
            (guest / name).chmod(0o644)
            for old, new in replacements:
                replace_once(guest / name, old, new)
        return self.with_setting(guest=guest)

    def with_noise(self, delta: float) -> Arena:
        return replace(self, referee=replace(self.referee, noise=noise(delta)))

    def with_setting(self, **changes: object) -> Arena:
        setting = replace(self.referee.setting, **changes)  # type: ignore[arg-type]
        clock = replace(self.referee.clock, setting=setting, known_us={})  # type: ignore[type-var]
        return replace(self, referee=replace(self.referee, setting=setting, clock=clock))


def replace_once(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} no longer holds what this test takes out: {old}"
    file.write_text(text.replace(old, new))


def staging_counts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without either guard that looks at how long staging takes."""
    monkeypatch.setattr(comparison, "STAGING_SLACK", float("inf"))
    monkeypatch.setattr(Comparison, "staged_log_ratios", property(lambda self: []))


def only_medians_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard that adds all calls up."""
    monkeypatch.setattr(comparison.Restart, "total_log_ratios", lambda self, side: [1.0] * len(self.log_ratios(side)))


def nothing_found(*_: object) -> Finding:
    """What a judge without eyes says."""
    return Finding(None, "")


def kept(verdict: Verdict) -> None:
    assert verdict.name == "kept", verdict.reason


def gains_nothing(verdict: Verdict) -> None:
    assert verdict.name in ("neutral", "slower"), verdict.reason
