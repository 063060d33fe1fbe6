"""A change may bring C++ that torch's extension builder compiles: in the sandbox, once, and not for each restart."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sandbox import choose
from sandbox.choose import Name, Wanted
from tests.files import folder_open_to_all, write_files
from tests.sandbox.conftest import available
from tools.integrity import hash_tree
from tools.judging.open_referee import open_referee
from tools.judging.worker import Build, Worker

BENCH = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0)

def build():
    return Model()

def inputs(seed):
    return (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)),)
"""
WITH_CODE = BENCH.replace(
    "import torch\n",
    """import pathlib
import torch
from torch.utils.cpp_extension import load

fast = load("fast", [str(pathlib.Path(__file__).with_name("fast.cpp"))])
""",
    1,
).replace("torch.relu(x * 2.0)", "fast.doubled(x)")
CODE = """
#include <torch/extension.h>

at::Tensor doubled(const at::Tensor& x) { return at::relu(x * FACTOR); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("doubled", &doubled); }
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("provider", ["docker", "bwrap"])
def test_it_is_built_in_the_sandbox_and_judged_like_anything_else(
    provider: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = str(Path(sys.executable).parent)  # ninja is one of them
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with folder_open_to_all() as folder:
        sandbox = available(choose.make(provider, Wanted(sys.executable, folder / "sandbox", (folder,))))
        tree = write_files(folder / "tree", {"bench.py": BENCH})
        (folder / "scratch").mkdir(mode=0o711)
        referee = open_referee(tree, "bench.py", python=sys.executable, sandbox=sandbox, scratch=folder / "scratch")
        try:
            right = referee.check(built(folder, "right", "2.0"))
            assert right.finding.verdict is None, right.finding.reason
            cache = right.build.cache
            assert cache is not None
            (library,) = (cache / "extensions").rglob("fast.so")
            with Worker(referee.setting, right.build) as worker:
                worker.ask("build", **referee.workload.build_arguments(worker))
                (copied,) = (worker.cache / "extensions").rglob("fast.so")
                assert copied.stat().st_mtime_ns == library.stat().st_mtime_ns, "it was not built again"
            assert referee.check(built(folder, "wrong", "2.1")).finding.verdict == "wrong"
            broken = referee.check(built(folder, "broken", "unknown_name")).finding
            assert broken.verdict == "broken" and "fast" in broken.reason
        finally:
            referee.close()


def built(folder: Path, name: str, factor: str) -> Build:
    files = {"bench.py": WITH_CODE, "fast.cpp": CODE.replace("FACTOR", factor)}
    tree = write_files(folder / name, files)
    return Build(hash_tree(tree)[:16], tree)
