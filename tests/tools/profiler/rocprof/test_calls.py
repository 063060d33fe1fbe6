"""The program that AMD's tools run makes the workload's calls; what it recorded gets into the profile.

rocprofv3 is a stand-in, see `stand_in.py`: nothing here ran on an AMD GPU.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import counters
from tests.evals.arena import Arena
from tools.profiler.collect import Collector, Depth
from tools.profiler.result import Ceilings, Profile
from tools.profiler.rocprof import calls
from tools.profiler.rocprof.running import run

HERE = Path(__file__).parent
RAISES = """

def fail(self, x):
    raise ValueError("not today")

Model.forward = fail
"""


@pytest.fixture
def collector(arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """Of a machine that says it has an MI300X, and has the tools."""
    bin = tmp_path / "bin"
    shutil.copytree(HERE / "samples", bin / "samples")
    (bin / "behaviour").write_text("")
    for name in ("rocprofv3", "rocprof-compute"):
        (bin / name).write_text(f"#!{sys.executable}\n{(HERE / 'stand_in.py').read_text()}")
        (bin / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{os.defpath}")
    monkeypatch.setattr(counters, "open_to_all", lambda: True)
    told = {**arena.referee.workload.environment, "device": "cuda", "gfx": "gfx942", "gpu_name": "AMD Instinct MI300X"}
    workload = replace(arena.referee.workload, environment=told)
    return Collector(arena.referee.setting, workload, Ceilings(), calls=2)


def looked_at(collector: Collector, arena: Arena, depth: Depth) -> Profile:
    profile = Profile(
        entry="bench.py",
        device="AMD Instinct MI300X",
        architecture="gfx942",
        calls=2,
        call_us=100.0,
        busy_us=50.0,
        span_us=60.0,
        idle_share=0.1,
    )
    return collector.look_closer(profile, arena.referee.pristine, depth)


def test_the_calls_are_made_without_anybody_to_talk_to(collector: Collector, arena: Arena) -> None:
    with calls.job(collector.setting, collector.workload, arena.referee.pristine, 2) as job:
        ran = run(job, "the program itself", lambda _: job.program)
        assert (ran.outcome, ran.notes) == ("ended", [])
    assert list(collector.setting.scratch.glob("calls-*")) == []


def test_a_build_that_fails_is_a_note(collector: Collector, arena: Arena) -> None:
    raises = arena.appended(
        "raises", "\n\ndef fail(self, x):\n    raise ValueError('not today')\n\nModel.forward = fail\n"
    )
    with calls.job(collector.setting, collector.workload, raises, 2) as job:
        ran = run(job, "the program itself", lambda _: job.program)
    assert ran.outcome == "failed" and "not today" in ran.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "says"),
    [
        ("none", set()),
        ("launches", {"rocprofv3"}),
        ("counters", {"rocprofv3"}),
        ("all", {"rocprofv3", "rocprof-compute"}),
    ],
)
def test_it_looks_as_deep_as_it_is_asked_to(depth: Depth, says: set[str], collector: Collector, arena: Arena) -> None:
    found = looked_at(collector, arena, depth)
    told = {note.partition(":")[0] for note in found.notes}
    assert says <= told, found.notes  # what the samples hold are kernels that this profile does not have
    assert told <= {"rocprofv3", "rocprof-compute"}
    assert any(command.startswith("counters, pass 1: rocprofv3 --pmc") for command in found.deeper)


def test_on_another_device_no_tool_of_amd_is_looked_for(collector: Collector, arena: Arena) -> None:
    plain = replace(collector, workload=arena.referee.workload)
    found = looked_at(plain, arena, "all")
    assert (found.notes, found.deeper) == ([], [])
