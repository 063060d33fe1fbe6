"""The program that AMD's tools are given to run: some calls of a build on the workload's inputs, and nothing else.

Does not talk to the agent while it runs: what is to be done stands in a file.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.judging.worker import Build, Setting
from tools.judging.workload import Workload
from tools.profiler.rocprof.running import Job
from tools.program_environment import environment
from tools.tree_removal import remove_tree


@contextmanager
def job(setting: Setting, workload: Workload, build: Build, calls: int) -> Iterator[Job]:
    """`calls` of each case, after the build; in folders that are removed afterwards. Raises: OSError."""
    folder = Path(tempfile.mkdtemp(prefix="calls-", dir=setting.scratch))
    try:
        folder.chmod(0o755)  # separate users pass through
        requests = folder / "requests.json"
        requests.write_text(json.dumps(_requests(_Shown(folder), workload, build, calls)))
        requests.chmod(0o644)
        argv = (str(setting.guest / "bootstrap.py"), "profiler", str(build.tree), setting.entry)
        yield Job(
            sandbox=setting.sandbox,
            python=setting.python,
            argv=(*argv, *([str(setting.original)] if setting.original else [])),
            cwd=(build.tree / setting.entry).parent,
            scratch=setting.scratch,
            env={**environment(None, threads=setting.threads), "RATCHET_REQUESTS": str(requests)},
            readable=(setting.guest, build.tree, folder),
            limits=setting.limits,
            cache=build.cache,
        )
    finally:
        remove_tree(folder)


class _Shown:
    """Files of ours where the program may read them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def reveal(self, source: Path) -> str:
        self._count += 1
        shown = self._folder / f"input-{self._count}"
        shutil.copyfile(source, shown)
        shown.chmod(0o644)
        return str(shown)


def _requests(shown: _Shown, workload: Workload, build: Build, calls: int) -> list[dict[str, object]]:
    cases = [
        {"path": shown.reveal(path), "phase": case.phase, "constants": list(workload.constants)}
        for path, case in zip(workload.inputs, workload.cases, strict=True)
    ]
    requests: list[dict[str, object]] = [
        {"op": "build", "compile_options": build.compile_options, **workload.build_arguments(shown)}
    ]
    if workload.states:
        requests.append({"op": "load_state", "path": shown.reveal(workload.states["a"])})
    return [*requests, {"op": "repeat", "cases": cases, "calls": calls}]
