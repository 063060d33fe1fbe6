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
from tests.tools.judging.compiles import BENCH
from tools.judging.check import Checks
from tools.judging.open_referee import open_referee
from tools.judging.worker import Build, Worker, WorkerFault

GRAPHS = "inductor/fxgraph/*/*/*"


@pytest.mark.slow
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
        write_files(worker.cache / "extensions" / "kernel", {"lock": "of who was building it"})
        worker.process.stop()
        return call_s(self, worker, *rest)

    def interrupted(self: Checks, worker: Worker, *rest: Any) -> float:
        raise Stopped(signal.SIGTERM)

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
        assert not any((begun / "extensions").exists() for begun in made), "nobody is there to open the lock"
        filled = referee.fill(replace(compiled, cache=made[-1]), halfway=made.append)
        assert filled.cache is not None and len(made) == 2 and filled.graph_breaks == 0
        assert first == {path.relative_to(filled.cache) for path in filled.cache.glob(GRAPHS)}, "nothing was made again"
        found = referee.check(filled).finding
        assert found.verdict is None and found.evidence["compiled"]["graphs"] == 1
    finally:
        referee.close()
