"""Tools are found and run in a real sandbox; one that is missing, fails, hangs or is silent becomes a note.

rocprofv3 itself is a stand-in that knows the documented options, see `stand_in.py`: nothing here ran on an AMD GPU.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import counters
from sandbox.errors import Unusable
from sandbox.local.provider import LocalSandbox
from tests.evals.arena import Arena
from tests.files import folder_open_to_all
from tests.sandbox.conftest import open_interpreter
from tools.profiler.collect import Collector, Depth
from tools.profiler.result import Ceilings, Profile
from tools.profiler.rocprof import running, tool
from tools.profiler.rocprof.running import Job, run
from tools.profiler.rocprof.tool import Tools, find_tools, record, record_compute

HERE = Path(__file__).parent
TWO = ("rocprofv3", "rocprof-sys-run")
Installed = Callable[..., Job]


@pytest.fixture(autouse=True)
def open_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where everybody may read them; the local sandbox grants no rights."""
    monkeypatch.setattr(counters, "open_to_all", lambda: True)


def install(bin: Path, behaviour: str, names: tuple[str, ...], python: str) -> None:
    if not bin.exists():
        shutil.copytree(HERE / "samples", bin / "samples")
    (bin / "behaviour").write_text(behaviour)
    for name in names:
        (bin / name).write_text(f"#!{python}\n{(HERE / 'stand_in.py').read_text()}")
        (bin / name).chmod(0o755)


@pytest.fixture
def installed() -> Iterator[Installed]:
    """A job whose sandbox has these tools, which behave like this."""
    with folder_open_to_all() as folder:
        python = open_interpreter() or sys.executable

        def installing(behaviour: str = "", *names: str) -> Job:
            install(folder / "bin", behaviour, names or ("rocprofv3",), python)
            (folder / "program.py").write_text("print('the program ran')\n")
            sandbox = LocalSandbox(python, folder / "sandbox", owned=(folder,))
            env = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.defpath}"}
            return Job(sandbox, python, ("program.py",), folder, folder / "scratch", env, (folder,), time_limit_s=30.0)

        yield installing


def test_tools_are_found_where_the_sandbox_has_them(installed: Installed) -> None:
    job = installed("", *TWO)
    found = find_tools(job)
    assert found.notes == []
    assert [(name, Path(path).name) for name, path in found.paths.items()] == [(name, name) for name in TWO]
    job = replace(job, env={"PATH": os.defpath})
    found = find_tools(job)
    assert found.paths == {} and len(found.notes) == 1 and "rocprofv3 is not in the sandbox" in found.notes[0]
    assert record(job, found, "gfx942").notes == []
    assert record_compute(job, found).notes == ["rocprof-compute is not in the sandbox"]
    found = find_tools(replace(job, python="/nowhere/python"))
    assert found.paths == {} and "was not started" in found.notes[0] and "/nowhere/python" in found.notes[0]


def test_the_trace_and_all_passes_are_recorded(installed: Installed) -> None:
    job = installed()
    tools = find_tools(job)
    found = record(job, tools, "gfx942")
    assert found.notes == []
    # two processes, five launches each; four passes, of two processes again
    assert len(found.dispatches) == 10
    assert len({each.counter for each in found.readings}) == 13 and len(found.readings) == 4 * 2 * 23
    assert list(job.scratch.iterdir()) == []
    found = record(job, tools, "gfx1100")
    assert len(found.dispatches) == 10 and found.notes == ["no counters are known for gfx1100"]
    assert record(job, tools, "gfx942", counters=False).readings == []


def test_only_what_reads_counters_asks_for_the_right_to(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "open_to_all", lambda: False)
    job = installed()
    found = record(job, find_tools(job), "gfx942")
    assert len(found.dispatches) == 10 and found.readings == []
    (note,) = found.notes  # one pass was tried, and no more
    assert "pass 1 of 4" in note and "perf_event_paranoid" in note


@pytest.mark.parametrize(
    ("behaviour", "note"),
    [
        ("crashes", "rocprofv3's trace ended with signal 6: rocprofv3: \ufffd[31mHSA_STATUS_ERROR"),
        ("hangs", "rocprofv3's trace did not end within 1 s: attaching"),
        ("silent", "rocprofv3's trace holds no kernel; those of a graph that is replayed may be hidden from it"),
        ("", "rocprofv3's trace ended with exit status 1: no weights"),
    ],
)
def test_a_tool_or_program_that_fails_is_a_note(behaviour: str, note: str, installed: Installed) -> None:
    job = installed(behaviour)
    if not behaviour:
        (job.cwd / "program.py").write_text("raise SystemExit('no weights')")
    tools = Tools({"rocprofv3": str(job.cwd / "bin/rocprofv3")})
    found = record(replace(job, time_limit_s=1.0) if behaviour == "hangs" else job, tools, "gfx942")
    assert (found.dispatches, found.notes) == ([], [note])
    assert list(job.scratch.iterdir()) == []


def test_a_pass_that_crashes_leaves_the_others(installed: Installed) -> None:
    job = installed("crashes-counting")
    found = record(job, find_tools(job), "gfx942")
    assert len(found.dispatches) == 10
    assert [note.partition(" ended")[0] for note in found.notes] == [
        f"rocprofv3's pass {number} of 4 of counters" for number in (1, 2, 3, 4)
    ]


@pytest.mark.slow
def test_after_a_pass_that_hangs_no_more_are_tried(installed: Installed) -> None:
    job = installed("hangs-counting")
    tools = find_tools(job)
    found = record(replace(job, time_limit_s=6.0), tools, "gfx942")
    assert len(found.dispatches) == 10
    assert found.notes == ["rocprofv3's pass 1 of 4 of counters did not end within 6 s: attaching"]


def test_rocprof_compute_is_read_as_well(installed: Installed) -> None:
    job = installed("", "rocprof-compute")
    found = record_compute(job, find_tools(job))
    assert len(found.dispatches) == 3 and found.readings and found.notes == []
    job = installed("silent", "rocprof-compute")
    assert record_compute(job, find_tools(job)).notes == ["rocprof-compute left no counters"]


def test_a_broken_sandbox_is_a_note(installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job, tools = installed(), Tools({"rocprofv3": "/opt/rocm/bin/rocprofv3"})
    (tmp_path / "file").write_text("")
    found = record(replace(job, scratch=tmp_path / "file"), tools, "gfx942")
    assert len(found.notes) == 1 and "was not started" in found.notes[0]

    def broken(*_: object) -> None:
        raise Unusable("exec", "the engine went away", hint="Start it.")

    monkeypatch.setattr(LocalSandbox, "start", broken)
    found = record(job, tools, "gfx942")
    assert found.notes == ["rocprofv3's trace was not started: the engine went away Start it."]
    assert list(job.scratch.iterdir()) == []


def test_a_lie_about_the_tools_names_none() -> None:
    paths = ("3", '"bin/x"', '"/a\\u0000"', '"/' + "a" * 2000 + '"')
    for said in ("", "{", "[]", '{"rm": "/bin/rm"}', "[" * 50_000, *(f'{{"rocprofv3": {path}}}' for path in paths)):
        assert tool._paths(said) == {}


def test_what_it_may_write_is_bounded(installed: Installed) -> None:
    command = running._command(installed(), Path("/home"), ("x",), counters=False)
    assert command.limits.disk_bytes == running.MOST_DISK_BYTES
    assert command.env["PATH"].endswith(running.ROCM) and command.writable == (Path("/home"),)


@pytest.fixture
def collector(arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """Of a machine that says it has an MI300X, and has the tools."""
    install(tmp_path / "bin", "", ("rocprofv3", "rocprof-compute"), sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.defpath}")
    told = {**arena.referee.workload.environment, "device": "cuda", "gfx": "gfx942", "gpu_name": "AMD Instinct MI300X"}
    workload = replace(arena.referee.workload, environment=told)
    return Collector(arena.referee.setting, workload, Ceilings(), calls=2)


def test_the_program_makes_the_calls_and_a_failure_is_a_note(collector: Collector, arena: Arena) -> None:
    raises = "\n\ndef fail(self, x):\n    raise ValueError('not today')\n\nModel.forward = fail\n"
    for build, outcome in ((arena.referee.pristine, "ended"), (arena.appended("raises", raises), "failed")):
        with running.job(collector.setting, collector.workload, build, 2) as job:
            ran = run(job, "the program itself", job.program)
        assert ran.outcome == outcome
        assert ["not today" in note for note in ran.notes] == [True] * (outcome == "failed")
    assert list(collector.setting.scratch.glob("calls-*")) == []


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
    times = {"calls": 2, "call_us": 100.0, "busy_us": 50.0, "span_us": 60.0, "idle_share": 0.1}
    device = {"device": "AMD Instinct MI300X", "architecture": "gfx942"}
    profile = Profile.model_validate({"entry": "bench.py", **device, **times})
    found = collector.look_closer(profile.model_copy(deep=True), arena.referee.pristine, depth)
    told = {note.partition(":")[0] for note in found.notes}
    assert says <= told, found.notes  # what the samples hold are kernels that this profile does not have
    assert told <= {"rocprofv3", "rocprof-compute"}
    assert any(command.startswith("counters, pass 1: rocprofv3 --pmc") for command in found.deeper)
    collector.workload = arena.referee.workload  # of another device
    found = collector.look_closer(profile, arena.referee.pristine, depth)
    assert (found.notes, found.deeper) == ([], [])
