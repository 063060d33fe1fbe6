"""Every block of Python in a skill pack runs as it stands, and kernels in it compile for AMD GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forking import ForkingSandbox
from tools.isa.compile import Compiler, Source

pytestmark = pytest.mark.slow

SKILLS = Path(__file__).parents[2] / "skills"
ARCHITECTURES = ("gfx90a", "gfx942", "gfx950")
# one process for all blocks of a file, which import torch once; each as a script of its own
RUN_ALL = """
import runpy, sys, traceback
for path in sys.argv[1:]:
    sys.argv = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except BaseException:
        print(path, file=sys.stderr)
        traceback.print_exc()
        sys.exit(1)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, what it is called, and what is in it."""

    file: Path
    line: int
    info: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.file.relative_to(SKILLS)}:{self.line}"


def blocks_of(file: Path) -> list[Block]:
    found, inside, start, info = [], list[str](), 0, ""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"```(.*)$", line)
        if fence and not start:
            start, info, inside = number, fence[1].strip(), []
        elif fence:
            found.append(Block(file, start, info, "\n".join(inside) + "\n"))
            start = 0
        elif start:
            inside.append(line)
    assert not start, f"{file}:{start}: a block that never ends"
    return found


BLOCKS = [block for file in sorted(SKILLS.rglob("*.md")) for block in blocks_of(file)]
FILES = sorted({block.file for block in BLOCKS if block.info.startswith("python")})
KERNELS = [block for block in BLOCKS if block.info == "python isa"]


def test_there_is_code_and_all_of_it_is_of_a_kind_that_is_run() -> None:
    assert len(FILES) >= 8 and KERNELS
    odd = [block.name for block in BLOCKS if block.info not in ("python", "python isa", "text", "json")]
    assert not odd, "what is not run is no block of code"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SKILLS)))
def test_the_code_runs(file: Path, tmp_path: Path) -> None:
    paths = []
    for block in blocks_of(file):
        if block.info.startswith("python"):
            paths.append(tmp_path / f"line_{block.line}.py")
            paths[-1].write_text(block.code)
    packs = os.pathsep.join(str(folder.parent) for folder in sorted(SKILLS.glob("*/assets")))
    env = {**os.environ, "PYTHONPATH": packs, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN_ALL, *map(str, paths)]
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", KERNELS, ids=lambda block: block.name)
def test_kernels_compile_for_amd_gpus_without_spills(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "source" / "block.py"
    file.parent.mkdir()
    file.write_text(block.code)
    source = Source(file, launch=file, every_kernel=True)
    found = Compiler(ForkingSandbox(), sys.executable, tmp_path / "work").compile(source, ARCHITECTURES)
    assert found.refusal is None, found.refusal
    assert {one.architecture.name for one in found.results} == {*ARCHITECTURES}
    for one in found.results:
        assert not one.error, one.error
        assert one.code.vgpr_spills == one.code.sgpr_spills == 0
