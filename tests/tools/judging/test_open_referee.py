"""What a referee is opened with: a folder for programs, limits for workers, packages to watch."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox import view
from tests.files import write_files
from tests.tools.judging.opened import linear, opened
from tools.errors import ToolError, WorkloadError
from tools.judging import open_referee, toolchain

SANDBOX: Any = None  # nothing is started


def test_a_folder_mounted_noexec_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = os.ST_NOEXEC | os.ST_NOSUID
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_flag=flags if folder == tmp_path else 0))
    with pytest.raises(ToolError, match="lies on a file system that is mounted noexec") as caught:
        open_referee.open_referee(tmp_path, "bench.py", python="python3", sandbox=SANDBOX, scratch=tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "--runs-dir" in caught.value.hint and "TMPDIR" in caught.value.hint
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("free", "allowed"), [(1 << 30, 8 << 30), (400 << 30, 100 << 30), (1 << 50, 768 << 30)])
def test_workers_may_use_part_of_the_disk(
    free: int, allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_referee.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    limits = open_referee.limits(tmp_path, 1 << 30)
    assert (limits.disk_bytes, limits.file_bytes, limits.memory_bytes) == (allowed, allowed, 1 << 30)


def installed(python: str, *named: str) -> list[Path]:
    workload: Any = SimpleNamespace(environment={"installed": named})
    return open_referee.installed(workload, python)


def test_only_packages_of_the_interpreter_itself_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    ours = Path(numpy.__file__).resolve().parent.parent
    assert installed(sys.executable, str(ours)) == [ours] and installed("/nowhere/python", str(ours)) == []
    lib = tmp_path / "venv" / "lib"
    packages = write_files(lib / "site-packages", {"torch.py": ""})
    elsewhere = write_files(tmp_path / "other" / "site-packages", {"x": ""})
    (lib / "dist-packages").symlink_to("/")
    (tmp_path / "venv" / "dist-packages").symlink_to(elsewhere)
    (lib / "loop").symlink_to("loop")
    monkeypatch.setattr(view, "of_python", lambda python: (tmp_path / "venv",))
    below = ["", "/dist-packages", f"/{'x' * 300}/site-packages", "/loop/site-packages", "/../dist-packages"]
    named = ["/", "/etc", "\0", "site-packages", f"{packages}/../../..", str(elsewhere), *(f"{lib}{e}" for e in below)]
    assert installed("python", *named, str(packages)) == [packages]


def test_it_is_known_whether_an_interpreter_has_bytecode(tmp_path: Path) -> None:
    assert not toolchain._lacks_bytecode("/no/such/python")
    packages = tmp_path / "lib" / "python3.12" / "site-packages" / "torch"
    write_files(tmp_path, {"pyvenv.cfg": f"home = {Path(sys.executable).resolve().parent}\n"})
    write_files(packages, {"__init__.py": ""})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    assert toolchain._lacks_bytecode(str(tmp_path / "bin" / "python"))


def test_what_is_made_ahead_ends_with_a_target_that_cannot_be_judged(tmp_path: Path) -> None:
    running = threading.active_count()
    with (
        pytest.raises(WorkloadError, match="with no tensor in it"),
        opened(tmp_path, {"bench.py": linear("None")}, compiles=True),
    ):
        pass
    assert threading.active_count() == running
