"""What an interpreter compiles beside a run is no change; what is forged, in any way that Python would read, is."""

from __future__ import annotations

import importlib.util
import marshal
import py_compile
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest

from tools.compiled_python import without_compiled
from tools.integrity import Manifest

SOURCE = '''
"""A module."""
SIZES = (1, 2.0, -0.0, True, None, ..., "text", b"bytes", 1j, frozenset({1, 2}))


class Scaled:
    """Scales."""

    def __init__(self, by):
        self.by = by

    def all(self, *values, times=1):
        assert times > 0, "never backwards"
        return [value * self.by * times for value in values if value in {1, 2, 3}]


async def later(x):
    try:
        yield lambda: (x, SIZES)
    except* ValueError as error:
        raise error
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    place = tmp_path / "package" / "scaled.py"
    place.write_text(SOURCE)
    return place


def compiled(module: Path, optimize: int = 0) -> Path:
    return Path(py_compile.compile(str(module), optimize=optimize, doraise=True) or "")


def forged(module: Path, code: CodeType, at: Path | None = None) -> Path:
    """A file that Python takes for the source compiled."""
    place = at or Path(importlib.util.cache_from_source(str(module)))
    place.parent.mkdir(exist_ok=True)
    facts = module.stat()
    header = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(facts.st_mtime), facts.st_size)
    place.write_bytes(header + marshal.dumps(code))
    return place


def added_by(module: Path, deed: Callable[[], object]) -> tuple[list[str], list[str]]:
    """(all changes, those that are left)"""
    before = Manifest.take([module.parent])
    deed()
    changes = Manifest.take([module.parent]).changes(before)
    return changes, without_compiled(changes)


def code_of(module: Path | str, text: str = SOURCE, optimize: int = 0) -> CodeType:
    return compile(text, str(module), "exec", dont_inherit=True, optimize=optimize)


@pytest.mark.parametrize("optimize", [0, 1, 2])
def test_what_an_interpreter_adds_is_no_change(module: Path, optimize: int) -> None:
    changes, left = added_by(module, lambda: compiled(module, optimize))
    assert len(changes) == 2 and not left


def test_it_may_have_been_compiled_by_another_name_of_the_same_folder(module: Path) -> None:
    assert not added_by(module, lambda: forged(module, code_of("package/scaled.py")))[1]


FORGERIES: dict[str, Callable[[Path], object]] = {
    "another constant": lambda m: forged(m, code_of(m, SOURCE.replace("-0.0", "0.0"))),
    "a number of another type": lambda m: forged(m, code_of(m, SOURCE.replace("True", "1"))),
    "another line in a function": lambda m: forged(m, code_of(m, SOURCE.replace("* times", "* 2"))),
    "asserts left out under the plain name": lambda m: forged(m, code_of(m, optimize=1)),
    "a smaller stack": lambda m: forged(m, code_of(m).replace(co_stacksize=1)),
    "no code": lambda m: forged(m, code_of(m)).write_bytes(b"forged"),
    "what ends the reader": lambda m: forged(m, code_of(m)).write_bytes(
        importlib.util.MAGIC_NUMBER + bytes(12) + b"(" * 100_000
    ),
    "a file of another source": lambda m: forged(
        m, code_of(m), m.parent / "__pycache__" / Path(importlib.util.cache_from_source("other.py")).name
    ),
    "without a source": lambda m: forged(m, code_of(m), m.parent / "lonely.pyc"),
    "a link": lambda m: (m.parent / "__pycache__").symlink_to(m.parent),
    "a source": lambda m: (m.parent / "more.py").write_text("x = 1\n"),
}


@pytest.mark.parametrize("deed", FORGERIES.values(), ids=FORGERIES)
def test_what_is_forged_is_a_change(module: Path, deed: Callable[[Path], object]) -> None:
    assert added_by(module, lambda: deed(module))[1]


def test_a_forged_one_does_not_take_others_with_it_that_were_read_before(module: Path) -> None:
    other = module.with_name("a.py")
    other.write_text("x = 1\n")
    changes, left = added_by(module, lambda: (compiled(other), FORGERIES["another constant"](module)))
    assert len(changes) == 3 and [Path(each).name for each in left] == [f"scaled.{sys.implementation.cache_tag}.pyc"]


def test_one_that_was_there_and_is_another_now_is_a_change(module: Path) -> None:
    compiled(module)
    assert added_by(module, lambda: forged(module, code_of(module)))[1]
