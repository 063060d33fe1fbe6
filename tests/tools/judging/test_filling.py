"""What a build compiles before it is timed: of one that is stopped, what is whole is gone on with."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.guard import Stopped
from sandbox import choose
from sandbox.choose import Wanted
from tests.files import write_files
from tools.judging.check import Checks
from tools.judging.open_referee import open_referee
from tools.judging.worker import Build, Worker, WorkerFault

BENCH = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0).sum(-1)

def build():
    return Model()

def inputs(seed):
    return (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)),)
"""
GRAPHS = "inductor/fxgraph/*/*/*"


@pytest.mark.timeout(600)
def test_who_stops_a_build_that_compiles_gets_what_is_whole_and_can_go_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_s, made = Checks._call_s, list[Path]()
    sandbox = choose.make("local", Wanted(sys.executable, tmp_path / "sandbox"))
    tree = write_files(tmp_path / "tree", {"bench.py": BENCH})
    referee = open_referee(tree, "bench.py", python=sys.executable, sandbox=sandbox, scratch=tmp_path / "scratch")
    compiled = Build("compiled", tree, compile_options={})

    def ended(self: Checks, worker: Worker, *rest: Any) -> float:
        """After the first call its process is ended, as it is for whoever waits for it in another thread."""
        call_s(self, worker, *rest)
        worker.process.stop()
        return call_s(self, worker, *rest)

    def interrupted(self: Checks, worker: Worker, *rest: Any) -> float:
        raise Stopped(signal.SIGALRM)

    try:
        referee.prepare_compiler()
        for stop, error in ((ended, WorkerFault), (interrupted, Stopped)):
            with monkeypatch.context() as stopping, pytest.raises(error):
                stopping.setattr(Checks, "_call_s", stop)
                referee.fill(replace(compiled, cache=made[0] if made else None), halfway=made.append)
        first, second = ({path.relative_to(begun) for path in begun.glob(GRAPHS)} for begun in made)
        assert first and second == first, "what there was is still there"
        linked = [path for begun in made for path in begun.rglob("*") if path.suffix in (".so", ".o")]
        assert not linked, "half of one may be there"
        filled = referee.fill(replace(compiled, cache=made[-1]), halfway=made.append)
        assert filled.cache is not None and len(made) == 2
        assert first == {path.relative_to(filled.cache) for path in filled.cache.glob(GRAPHS)}, "nothing was made anew"
        found = referee.check(filled).finding
        assert found.verdict is None and found.evidence["compiled"]["graphs"] == 1
    finally:
        referee.close()
