"""Kernels of these tests and of the skills, compiled in a local sandbox; each file once for the whole session."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.files import folder_open_to_all
from tests.forking import ForkingSandbox
from tools.hardware import ARCHITECTURES
from tools.isa.compile import Compilations, Compiler, Source

KERNELS = Path(__file__).parent / "kernels" / "kernels.py"
ASSETS = Path(__file__).resolve().parents[3] / "skills" / "triton-on-rocm" / "assets"


_HEAD, *_PARTS = KERNELS.read_text().split("\n\n\n")
NAMES = [re.findall(r"^def (\w+)", part, re.MULTILINE)[0] for part in _PARTS]


def source_of(name: str) -> str:
    """A file of this kernel alone."""
    return f"{_HEAD}\n\n\n{_PARTS[NAMES.index(name)]}\n"


def _described(name: str, **constants: object) -> Any:
    said = json.loads((ASSETS / f"{name}.isa.json").read_text())
    return {**said, "constexprs": {**said["constexprs"], **constants}}


SOURCES = {
    **{name: Source(KERNELS, name) for name in NAMES},
    "elementwise of few waves": Source(KERNELS, "elementwise", signature={"waves_per_eu": 2}),
    "rms_norm": Source(ASSETS / "rms_norm.py", "_kernel", signature=_described("rms_norm")),
    "gated_mul": Source(ASSETS / "gated_mul.py", signature=_described("gated_mul")),
    "layer_norm template": Source(ASSETS / "layer_norm.py", signature=_described("layer_norm")),
    "layer_norm of wide rows": Source(
        ASSETS / "layer_norm.py", signature=_described("layer_norm", ONE_TILE=False, TILE=8192)
    ),
    "add_rms_norm": Source(ASSETS / "rms_norm.py", "_kernel", signature=_described("rms_norm", ADDS=True)),
    "add_layer_norm": Source(ASSETS / "layer_norm.py", signature=_described("layer_norm", ADDS=True)),
    "rotary": Source(ASSETS / "rotary.py", signature=_described("rotary")),
    "rotary, interleaved": Source(ASSETS / "rotary.py", signature=_described("rotary", INTERLEAVED=True)),
    "softmax_topk": Source(ASSETS / "softmax_topk.py", signature=_described("softmax_topk")),
}
Compile = Callable[[str], Compilations]


@pytest.fixture(scope="session")
def compiler() -> Iterator[Compiler]:
    with folder_open_to_all() as folder:
        yield Compiler(ForkingSandbox(), sys.executable, folder)


@pytest.fixture(scope="session")
def compiled(compiler: Compiler) -> Compile:
    """One of `SOURCES` for all architectures; what spills takes long, so for two."""
    kept: dict[str, Compilations] = {}

    def compile_once(name: str) -> Compilations:
        if name not in kept:
            names = ["gfx942", "gfx1201"] if name == "spilling" else list(ARCHITECTURES)
            kept[name] = compiler.compile(SOURCES[name], names)
            assert kept[name].refusal is None
        return kept[name]

    return compile_once


@pytest.fixture
def kernel_file(tmp_path: Path) -> Callable[..., Path]:
    """A file of this source, with Triton imported."""

    def write(source: str, name: str = "kernels.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import triton\nimport triton.language as tl\n\n" + source)
        return path

    return write


def one(results: Any, architecture: str) -> Any:
    return next(each for each in results.results if each.architecture.name == architecture)
