"""What every verdict rests on may not change; that Python is started beside the run is no change."""

from __future__ import annotations

import py_compile
from pathlib import Path

import pytest

from tools.errors import GroundsChanged
from tools.judging.grounds import Grounds


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    (tmp_path / "library.py").write_text("SIZE = 1\n")
    return tmp_path


def test_a_package_that_is_compiled_while_the_run_goes_on_is_no_change(packages: Path) -> None:
    grounds = Grounds()
    grounds.share([packages])
    py_compile.compile(str(packages / "library.py"), doraise=True)
    grounds.check()


def test_a_package_that_is_compiled_from_something_else_is_one(packages: Path) -> None:
    grounds = Grounds()
    grounds.share([packages])
    source = packages / "library.py"
    compiled = Path(py_compile.compile(str(source), doraise=True) or "")
    compiled.write_bytes(compiled.read_bytes().replace(b"SIZE", b"TIME"))
    with pytest.raises(GroundsChanged, match="library"):
        grounds.check()
