"""What containment costs: starting a process and a restart of the referee, for every provider in turns.

A cost is a ratio to the local provider within the same round, because machines differ and drift. What a whole
run takes, `evals run decoder --sandbox NAME` tells.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from statistics import median

from pydantic import BaseModel, Field

from agent.reporting import wording
from evals import run_tasks
from evals.results import Evidence
from sandbox import choose
from sandbox.choose import Name, Wanted
from sandbox.contract import Command, Sandbox
from tools.judging import accept
from tools.judging.measure import ComparisonRequest
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee

TASK = "decoder"
PROVIDERS: tuple[Name, ...] = ("local", "docker", "bwrap")
STARTS, RESTARTS = 12, 12
_TIMEOUT_S = 120.0
_PACKAGE = "_ratchet_guest"
_GUEST = f"""
import os, sys, time
sys.path.insert(0, os.getcwd())
from {_PACKAGE}.wire import connect
channel = connect(os.environ["RATCHET_CHANNEL"])
begun = time.perf_counter()
import torch
imported = time.perf_counter()
torch.nn.functional.linear(torch.ones(4, 64), torch.ones(64, 64))
channel.send({{"import_s": imported - begun, "call_s": time.perf_counter() - imported}})
channel.receive()
"""


class Start(BaseModel):
    """One process: from asking for it to the answer of its first call, and from asking it to end to its being gone."""

    provider: Name
    to_first_call_s: float
    torch_import_s: float  # of that, as the process tells
    first_call_s: float  # likewise
    end_s: float

    @property
    def beyond_import_s(self) -> float:
        return self.to_first_call_s - self.torch_import_s


class Restart(BaseModel):
    """One restart of an A/A comparison: two workers started, warmed up, timed in turns and ended."""

    provider: Name
    wall_s: float
    call_us: float


class Containment(Evidence):
    """One execution of `evals containment`."""

    topic = "containment"
    title = "What containment costs"
    starts: list[Start] = Field(default_factory=list)
    restarts: list[Restart] = Field(default_factory=list)

    def body(self) -> str:
        how = "Everything in turns; ratios are to `local` in the same round, with 95 % intervals.\n"
        return "\n".join([how, *_starts(self.starts), *_restarts(self.restarts)])


def _starts(starts: Sequence[Start]) -> Iterator[str]:
    yield f"## Starting a process ({_of_each(starts)} each)\n"
    yield "| provider | to the first call | of that, importing torch | beyond it | slowest | to its end |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in PROVIDERS:
        if mine := [each for each in starts if each.provider == name]:
            beyond = [each.beyond_import_s for each in mine]
            yield (
                f"| {name} | {median(each.to_first_call_s for each in mine):.2f} s "
                f"| {median(each.torch_import_s for each in mine):.2f} s | {median(beyond):.2f} s "
                f"| {max(beyond):.2f} s | {median(each.end_s for each in mine):.2f} s |"
            )


def _restarts(restarts: Sequence[Restart]) -> Iterator[str]:
    yield f"\n## A restart of the referee ({TASK}, {_of_each(restarts)} each)\n"
    yield "| provider | restart | over local | a call | over local |"
    yield "| --- | --- | --- | --- | --- |"
    for name in PROVIDERS:
        if mine := [each for each in restarts if each.provider == name]:
            wall, call = (_over_local(restarts, name, of) for of in (lambda r: r.wall_s, lambda r: r.call_us))
            yield (
                f"| {name} | {median(each.wall_s for each in mine):.2f} s | {wall} "
                f"| {median(each.call_us for each in mine) / 1e3:.2f} ms | {call} |"
            )


def _over_local(restarts: Sequence[Restart], name: Name, of: Callable[[Restart], float]) -> str:
    local, mine = ([of(each) for each in restarts if each.provider == wanted] for wanted in ("local", name))
    if name == "local":
        return "1"
    ratios = [math.log(mine_each / local_each) for mine_each, local_each in zip(mine, local, strict=False)]
    return wording.speedup(accept.speedup_interval(ratios))


def _of_each(measured: Sequence[Start] | Sequence[Restart]) -> int:
    """How many there are of each provider; a round that is not over counts."""
    return max(Counter(each.provider for each in measured).values(), default=0)


def run(
    results_dir: Path, *, providers: Sequence[Name] = PROVIDERS, starts: int = STARTS, restarts: int = RESTARTS
) -> int:
    """Measure and store, `starts` and `restarts` of each provider; returns 0. Raises: RatchetError."""
    found = Containment()
    with tempfile.TemporaryDirectory(prefix="ratchet-containment-") as folder:
        Path(folder).chmod(0o755)  # separate users pass through
        sandboxes = {name: _sandbox(name, Path(folder) / name) for name in providers}
        for number in range(starts):
            found.starts += [_start(sandbox, name, Path(folder)) for name, sandbox in sandboxes.items()]
            print(f"starts: {number + 1} of {starts}", flush=True)
        with contextlib.ExitStack() as ending:
            referees = {name: _referee(sandbox, Path(folder) / name) for name, sandbox in sandboxes.items()}
            for referee in referees.values():
                ending.callback(referee.close)
            for number in range(restarts):
                found.restarts += [_restart(referee, name) for name, referee in referees.items()]
                print(f"restarts: {number + 1} of {restarts}", flush=True)
    print(f"\n{found.page()}\n{found.write(results_dir)}")
    return 0


def _sandbox(name: Name, folder: Path) -> Sandbox:
    folder.mkdir()
    sandbox = choose.make(name, Wanted(sys.executable, folder / "sandbox", (folder,)))
    sandbox.promises()
    return sandbox


def _start(sandbox: Sandbox, name: Name, folder: Path) -> Start:
    home = Path(tempfile.mkdtemp(prefix="start-", dir=folder))
    (home / _PACKAGE).mkdir()
    for file in ("__init__.py", "wire.py"):
        (home / _PACKAGE / file).write_bytes(resources.files("sandbox.guest").joinpath(file).read_bytes())
    for each in (home, home / _PACKAGE):
        each.chmod(0o755)
    environ = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    begun = time.perf_counter()
    process = sandbox.start(Command((sys.executable, "-c", _GUEST), home, "start", environ, readable=(home,)))
    told = process.channel.receive(_TIMEOUT_S)
    answered = time.perf_counter()
    process.stop()
    ended = time.perf_counter()
    shutil.rmtree(home)
    return Start(
        provider=name,
        to_first_call_s=round(answered - begun, 4),
        torch_import_s=round(told["import_s"], 4),
        first_call_s=round(told["call_s"], 4),
        end_s=round(ended - answered, 4),
    )


def _referee(sandbox: Sandbox, folder: Path) -> Referee:
    shutil.copytree(run_tasks.TASKS / TASK, folder / "tree")
    (folder / "scratch").mkdir()
    return open_referee(
        folder / "tree", run_tasks.ENTRY, python=sys.executable, sandbox=sandbox, scratch=folder / "scratch"
    )


def _restart(referee: Referee, name: Name) -> Restart:
    """Raises: IncumbentFails."""
    pristine = referee.pristine
    request = ComparisonRequest("containment", pristine, {"candidate": pristine}, enough=lambda found: True)
    measured = referee.clock.compare(request).only
    return Restart(provider=name, wall_s=round(measured.wall_s, 4), call_us=round(measured.incumbent_us[0][0], 3))
