"""torch.compile works where code is contained, with the headers and answers that were made once for all workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox import choose
from sandbox.choose import Name, Wanted
from tests.files import folder_open_to_all, write_files
from tests.sandbox.conftest import available
from tests.tools.judging.compiles import BENCH
from tools.judging.open_referee import open_referee
from tools.judging.worker import Build, Worker


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("provider", ["docker", "bwrap"])
def test_compiling_needs_nothing_that_it_may_not_write(provider: Name) -> None:
    with folder_open_to_all() as open_folder:
        compiles(provider, open_folder)


def compiles(provider: Name, open_folder: Path) -> None:
    python = sys.executable
    sandbox = available(choose.make(provider, Wanted(python, open_folder / "sandbox", (open_folder,))))
    tree = write_files(open_folder / "tree", {"bench.py": BENCH})
    (open_folder / "scratch").mkdir(mode=0o711)
    referee = open_referee(tree, "bench.py", python=python, sandbox=sandbox, scratch=open_folder / "scratch")
    referee.workload.environment["library_bytecode"] = False
    try:
        referee.prepare_compiler()
        made = referee.setting.toolchain
        assert made is not None
        (header,) = (made / "headers").glob("*.gch")
        assert list((made / "bytecode").rglob("torch/_inductor/__init__.*.pyc"))
        filled = referee.fill(Build("compiled", tree, compile_options={}))
        found = referee.check(filled).finding
        assert found.verdict is None and found.evidence["compiled"]["graphs"] == 1
        assert found.evidence["compiled"]["graph_breaks"] == 0 and found.evidence["compiled"]["first_call_s"] > 0
        assert found.evidence["compiled"]["recompiles"] == 0
        assert "compiled" not in referee.check_pristine().finding.evidence
        assert filled.cache is not None and list(filled.cache.rglob("*.so"))
        with Worker(referee.setting, referee.pristine) as worker:
            (linked,) = (worker.home / "tmp").rglob("*.gch")
            assert linked.resolve() == header
    finally:
        referee.close()
