"""Compiling works where code is contained: with what was made once for all workers, and of C++ that a change brings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandbox import choose
from sandbox.choose import Name, Wanted
from tests.files import folder_open_to_all, write_files
from tests.sandbox.conftest import available
from tests.tools.judging.opened import linear
from tools.integrity import hash_tree
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee
from tools.judging.worker import Build, Worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.parametrize("provider", ["docker", "bwrap"])]


@contextmanager
def contained(provider: Name, *, compiles: bool = False) -> Iterator[tuple[Path, Referee]]:
    """A referee on a layer, and a folder that workers may enter."""
    with folder_open_to_all() as folder:
        sandbox = available(choose.make(provider, Wanted(sys.executable, folder / "sandbox", (folder,))))
        tree = write_files(folder / "tree", {"bench.py": linear("torch.relu(x * 2.0)")})
        (folder / "scratch").mkdir(mode=0o711)
        scratch = folder / "scratch"
        opened = open_referee(
            tree, "bench.py", python=sys.executable, sandbox=sandbox, scratch=scratch, compiles=compiles
        )
        with closing(opened) as found:
            yield folder, found


def test_compiling_needs_nothing_that_it_may_not_write(provider: Name) -> None:
    with contained(provider) as (_, referee):
        referee.workload.environment["library_bytecode"] = False
        referee.prepare_compiler()
        made = referee.setting.toolchain
        assert made is not None
        (header,) = (made / "headers").glob("*.gch")
        assert list((made / "bytecode").rglob("torch/_inductor/__init__.*.pyc"))
        filled = referee.fill(Build("compiled", referee.pristine.tree, compile_options={}))
        found = referee.check(filled).finding
        told = found.evidence["compiled"]
        assert found.verdict is None and (told["graphs"], told["graph_breaks"], told["recompiles"]) == (1, 0, 0)
        assert told["first_call_s"] > 0 and "compiled" not in referee.check_pristine().finding.evidence
        assert filled.cache is not None and list(filled.cache.rglob("*.so"))
        with Worker(referee.setting, referee.pristine) as worker:
            (linked,) = (worker.home / "tmp").rglob("*.gch")
            assert linked.resolve() == header


def test_it_is_made_while_the_target_is_looked_at_and_again_for_another_device(provider: Name) -> None:
    with contained(provider, compiles=True) as (_, referee):
        referee.prepare_compiler()
        made = referee.setting.toolchain
        assert referee.ahead is not None and made is not None
        first = made.stat().st_ino
        assert list((made / "headers").glob("*.gch")) and (made / "bytecode").exists() is referee.ahead.bytecode
        referee.prepare_compiler()
        assert made.stat().st_ino == first
        referee.ahead.device = "cuda"
        referee.prepare_compiler()
        assert made.stat().st_ino != first and list((made / "headers").glob("*.gch"))


LOADS = """import torch
import pathlib
from torch.utils.cpp_extension import load

fast = load("fast", [str(pathlib.Path(__file__).with_name("fast.cpp"))])
"""
CODE = """
#include <torch/extension.h>

at::Tensor doubled(const at::Tensor& x) { return at::relu(x * FACTOR); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("doubled", &doubled); }
"""


def test_an_extension_is_built_once_and_judged_as_usual(provider: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = str(Path(sys.executable).parent)  # ninja is one of them
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with contained(provider) as (folder, referee):

        def built(name: str, factor: str) -> Build:
            entry = linear("fast.doubled(x)").replace("import torch\n", LOADS, 1)
            tree = write_files(folder / name, {"bench.py": entry, "fast.cpp": CODE.replace("FACTOR", factor)})
            return Build(hash_tree(tree)[:16], tree)

        right = referee.check(built("right", "2.0"))
        assert right.finding.verdict is None, right.finding.reason
        cache = right.build.cache
        assert cache is not None
        (library,) = (cache / "extensions").rglob("fast.so")
        with Worker(referee.setting, right.build) as worker:
            worker.ask("build", **referee.workload.build_arguments(worker))
            (copied,) = (worker.cache / "extensions").rglob("fast.so")
            assert copied.stat().st_mtime_ns == library.stat().st_mtime_ns, "it was not built again"
        assert referee.check(built("wrong", "2.1")).finding.verdict == "wrong"
        broken = referee.check(built("broken", "unknown_name")).finding
        assert broken.verdict == "broken" and "fast" in broken.reason
