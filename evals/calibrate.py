"""Calibrate the judge: judge known effects many times and count wrong verdicts.

The target differs only in the work it wastes: the same (A/A), 3 % more, 10 % less. Each is judged as a candidate of a
run is. The result has every comparison with its restarts and its time.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median_high
from typing import Any

from pydantic import BaseModel, Field

from agent import environment
from agent.reporting import wording
from evals.results import Evidence
from sandbox.choose import Wanted, choose
from tools.judging import accept
from tools.judging.check import Checked
from tools.judging.comparison import Comparison
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee
from tools.judging.worker import Build

TARGET = Path(__file__).parent / "calibration_target"
WASTE = 200  # steps of wasted work in a call of the baseline, beside one that counts


class Effect(BaseModel):
    """A known effect and the verdicts that it allows."""

    name: str
    speedup: float
    comparisons: int
    most_kept: int
    least_kept: int = 0


EFFECTS = (
    Effect(name="the same code", speedup=1.0, comparisons=60, most_kept=0),
    Effect(name="3 % slower", speedup=1 / 1.03, comparisons=20, most_kept=0),
    Effect(name="10 % faster", speedup=1.10, comparisons=20, most_kept=20, least_kept=18),
)


class Judged(BaseModel):
    """One comparison with its verdict."""

    effect: str
    kept: bool
    verdict: str
    restarts: int
    wall_s: float
    interval: accept.SpeedupInterval | None = None
    """None where nothing was decided."""
    comparison: dict[str, Any] = Field(default_factory=dict)
    """As in the evidence of a verdict."""


class Calibration(Evidence):
    """One execution of `evals calibrate`."""

    topic = "calibration"
    title = "Calibration of the judge"
    delta: float = 0.0
    aa: Comparison | None = None
    judged: list[Judged] = Field(default_factory=list)

    def rows(self, effect: Effect) -> list[Judged]:
        return [judged for judged in self.judged if judged.effect == effect.name]

    def passed(self, effect: Effect) -> bool:
        rows = self.rows(effect)
        return (
            len(rows) == effect.comparisons and effect.least_kept <= sum(row.kept for row in rows) <= effect.most_kept
        )

    def body(self) -> str:
        lines = [
            f"Noise floor of the session: {self.delta:.1%}.\n",
            "| effect | comparisons | kept | allowed | median of medians | restarts | time |",
            "| --- " * 7 + "|",
        ]
        for effect in EFFECTS:
            rows = self.rows(effect)
            medians = [row.interval.median for row in rows if row.interval]
            middle = f"{median_high(medians):.3f}" if medians else "–"
            allowed = f"{effect.least_kept} to {effect.most_kept}"
            restarts, took = (
                _range(of) for of in ([row.restarts for row in rows], [round(row.wall_s) for row in rows])
            )
            kept = sum(row.kept for row in rows)
            lines.append(f"| {effect.name} | {len(rows)} | {kept} | {allowed} | {middle} | {restarts} | {took} s |")
        return "\n".join(lines)


def run(results_dir: Path) -> int:
    """Calibrate and store the result; returns 0 when the judge erred no more than it may. Raises: RatchetError."""
    found = Calibration()
    with tempfile.TemporaryDirectory(prefix="ratchet-calibrate-") as folder:
        referee, trees = _referee(Path(folder))
        with contextlib.closing(referee):
            found.environment = environment.describe(referee.workload.environment)
            pristine = referee.check_pristine()
            referee.measure_noise()
            found.delta, found.aa = referee.narrow_noise().delta, referee.aa
            for effect in EFFECTS:
                checked = referee.check(trees[effect.name])
                for number in range(effect.comparisons):
                    found.judged.append(_judge(referee, effect, checked, pristine.build))
                    _say(effect, number, found.judged[-1])
                    stored = found.write(results_dir)
    print(f"\n{found.page()}\n{stored}")
    return 0 if all(found.passed(effect) for effect in EFFECTS) else 1


def _referee(folder: Path) -> tuple[Referee, dict[str, Build]]:
    sandbox = choose(Wanted(sys.executable, folder / "sandbox", (folder,)), agree=lambda reasons: True)
    trees = {effect.name: _tree(folder / "trees" / str(index), effect.speedup) for index, effect in enumerate(EFFECTS)}
    (folder / "scratch").mkdir()
    referee = open_referee(
        _tree(folder / "pristine", 1.0), "bench.py", python=sys.executable, sandbox=sandbox, scratch=folder / "scratch"
    )
    return referee, {name: Build(f"effect-{index}", tree) for index, (name, tree) in enumerate(trees.items())}


def _tree(into: Path, speedup: float) -> Path:
    """The target with its waste set so that a call takes 1/speedup as long."""
    shutil.copytree(TARGET, into)
    model = into / "model.py"
    text, line = model.read_text(), f"WASTE = {WASTE}\n"
    assert line in text, "the calibration target has lost the line that is varied"
    model.write_text(text.replace(line, f"WASTE = {round((WASTE + 1) / speedup) - 1}\n"))
    return into


def _judge(referee: Referee, effect: Effect, checked: Checked, incumbent: Build) -> Judged:
    begun = time.monotonic()
    verdict = referee.time(checked, incumbent, effect.name)
    compared = verdict.evidence["comparison"]
    return Judged(
        effect=effect.name,
        kept=verdict.name == "kept",
        verdict=verdict.name,
        restarts=compared["restarts"],
        interval=verdict.speedup,
        wall_s=round(time.monotonic() - begun, 1),
        comparison=compared,
    )


def _say(effect: Effect, number: int, judged: Judged) -> None:
    speedup = wording.speedup(judged.interval) if judged.interval else "nothing decided"
    print(
        f"{effect.name} {number + 1}/{effect.comparisons}: {judged.verdict}, {speedup}, "
        f"{judged.restarts} restarts, {judged.wall_s:.0f} s",
        flush=True,
    )


def _range(values: list[int]) -> str:
    return f"{min(values)} to {max(values)}" if values else "–"
