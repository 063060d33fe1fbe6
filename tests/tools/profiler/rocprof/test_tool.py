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
from sandbox.errors import SandboxError, Unusable
from sandbox.local.provider import LocalSandbox
from tests.files import folder_open_to_all
from tests.sandbox.conftest import open_interpreter
from tools.profiler.rocprof import running, tool
from tools.profiler.rocprof.tool import Job, Tools, find_tools, record, record_compute

HERE = Path(__file__).parent
Installed = Callable[..., Job]


@pytest.fixture(autouse=True)
def open_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where everybody may read them; the local sandbox grants no rights."""
    monkeypatch.setattr(counters, "open_to_all", lambda: True)


@pytest.fixture
def installed() -> Iterator[Installed]:
    """A job whose sandbox has these tools, which behave like this."""
    with folder_open_to_all() as folder:
        python = open_interpreter() or sys.executable
        bin = folder / "bin"
        shutil.copytree(HERE / "samples", bin / "samples")

        def install(behaviour: str = "", *names: str) -> Job:
            (bin / "behaviour").write_text(behaviour)
            for name in names or ("rocprofv3",):
                (bin / name).write_text(f"#!{python}\n{(HERE / 'stand_in.py').read_text()}")
                (bin / name).chmod(0o755)
            (folder / "program.py").write_text("print('the program ran')\n")
            sandbox = LocalSandbox(python, folder / "sandbox", owned=(folder,))
            env = {"PATH": f"{bin}{os.pathsep}{os.defpath}"}
            return Job(sandbox, python, ("program.py",), folder, folder / "scratch", env, (folder,), time_limit_s=30.0)

        yield install


def nothing_left(job: Job) -> bool:
    return list(job.scratch.iterdir()) == []


def test_tools_are_found_where_the_sandbox_has_them(installed: Installed) -> None:
    job = installed("", "rocprofv3", "rocprof-sys-run")
    found = find_tools(job)
    assert found.notes == []
    assert {name: Path(path).name for name, path in found.paths.items()} == {
        "rocprofv3": "rocprofv3",
        "rocprof-sys-run": "rocprof-sys-run",
    }
    assert nothing_left(job)


def test_without_the_tool_there_is_one_note_and_no_more(installed: Installed) -> None:
    job = replace(installed(), env={"PATH": os.defpath})
    found = find_tools(job)
    assert found.paths == {} and len(found.notes) == 1 and "rocprofv3 is not in the sandbox" in found.notes[0]
    assert record(job, found, "gfx942").notes == []
    assert record_compute(job, found).notes == ["rocprof-compute is not in the sandbox"]


def test_a_sandbox_without_that_python_is_a_note(installed: Installed) -> None:
    found = find_tools(replace(installed(), python="/nowhere/python"))
    assert found.paths == {} and "was not started" in found.notes[0] and "/nowhere/python" in found.notes[0]


def test_the_trace_and_all_passes_are_recorded(installed: Installed) -> None:
    job = installed()
    found = record(job, find_tools(job), "gfx942")
    assert found.notes == []
    # two processes, five launches each; four passes, of two processes again
    assert len(found.dispatches) == 10
    assert len({each.counter for each in found.readings}) == 13 and len(found.readings) == 4 * 2 * 23
    assert nothing_left(job)


def test_only_what_reads_counters_asks_for_the_right_to(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "open_to_all", lambda: False)
    job = installed()
    found = record(job, find_tools(job), "gfx942")
    assert len(found.dispatches) == 10 and found.readings == []
    (note,) = found.notes  # one pass was tried, and no more
    assert "pass 1 of 4" in note and "perf_event_paranoid" in note


def test_counters_are_not_read_where_none_are_known_or_wanted(installed: Installed) -> None:
    job = installed("crashes-counting")
    found = record(job, find_tools(job), "gfx1100")
    assert len(found.dispatches) == 10 and found.notes == ["no counters are known for gfx1100"]
    assert record(job, find_tools(job), "gfx942", counters=False).notes == []


def test_a_tool_that_crashes_is_a_note_with_its_last_words(installed: Installed) -> None:
    job = installed("crashes")
    found = record(job, find_tools(job), "gfx942")
    assert found.dispatches == []
    (note,) = found.notes
    assert note == "rocprofv3's trace ended with signal 6: rocprofv3: \ufffd[31mHSA_STATUS_ERROR"
    assert nothing_left(job)


def test_a_pass_that_crashes_leaves_the_others(installed: Installed) -> None:
    job = installed("crashes-counting")
    found = record(job, find_tools(job), "gfx942")
    assert len(found.dispatches) == 10
    assert [note.partition(" ended")[0] for note in found.notes] == [
        f"rocprofv3's pass {number} of 4 of counters" for number in (1, 2, 3, 4)
    ]


def test_a_tool_that_hangs_is_ended_after_its_time(installed: Installed) -> None:
    job = replace(installed("hangs"), time_limit_s=1.0)
    found = record(job, find_tools(job), "gfx942")
    assert found.notes == ["rocprofv3's trace did not end within 1 s: attaching"]
    assert nothing_left(job)


@pytest.mark.slow
def test_after_a_pass_that_hangs_no_more_are_tried(installed: Installed) -> None:
    job = installed("hangs-counting")
    tools = find_tools(job)
    found = record(replace(job, time_limit_s=6.0), tools, "gfx942")
    assert len(found.dispatches) == 10
    assert found.notes == ["rocprofv3's pass 1 of 4 of counters did not end within 6 s: attaching"]


def test_a_tool_that_leaves_nothing_is_told(installed: Installed) -> None:
    job = installed("silent")
    found = record(job, find_tools(job), "gfx942")
    assert found.dispatches == []
    assert [note.partition(";")[0] for note in found.notes] == ["rocprofv3's trace holds no kernel"]


def test_a_program_that_fails_under_the_tool_is_told(installed: Installed) -> None:
    job = installed()
    (job.cwd / "program.py").write_text("raise SystemExit('no weights')")
    assert record(job, find_tools(job), "gfx942").notes == ["rocprofv3's trace ended with exit status 1: no weights"]


def test_rocprof_compute_is_read_as_well(installed: Installed) -> None:
    job = installed("", "rocprof-compute")
    found = record_compute(job, find_tools(job), "Cijk")
    assert len(found.dispatches) == 3 and found.readings and found.notes == []
    job = installed("silent", "rocprof-compute")
    assert record_compute(job, find_tools(job)).notes == ["rocprof-compute left no counters"]


def test_a_sandbox_that_breaks_ends_nothing(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    job = installed()

    def broken(*_: object) -> None:
        raise Unusable("exec", "the engine went away", hint="Start it.")

    monkeypatch.setattr(LocalSandbox, "start", broken)
    found = record(job, Tools({"rocprofv3": "/opt/rocm/bin/rocprofv3"}), "gfx942")
    assert found.notes == ["rocprofv3's trace was not started: the engine went away Start it."]
    assert issubclass(Unusable, SandboxError) and nothing_left(job)


def test_a_disk_without_room_ends_nothing(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = record(replace(installed(), scratch=tmp_path / "file"), Tools({"rocprofv3": "/x"}), "gfx942")
    assert len(found.notes) == 1 and "was not started" in found.notes[0]


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[]",
        "null",
        '{"rocprofv3": 3}',
        '{"rocprofv3": "bin/x"}',
        '{"rm": "/bin/rm"}',
        "[" * 50_000,
        '{"rocprofv3": "/a\\u0000"}',
        '{"rocprofv3": "/' + "a" * 2000 + '"}',
    ],
)
def test_a_lie_about_the_tools_names_none(said: str) -> None:
    assert tool._paths(said) == {}


def test_what_it_may_write_is_bounded(installed: Installed) -> None:
    command = running._command(installed(), Path("/home"), ("x",), counters=False)
    assert command.limits.disk_bytes == running.MOST_DISK_BYTES
    assert command.env["PATH"].endswith(running.ROCM) and command.writable == (Path("/home"),)
