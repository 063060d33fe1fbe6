"""What is tried when. The ten steps go in their order, but for one that what was measured at the start puts first, and
one that promises most where time is short.

On a GPU what gains most goes first, since all that comes after is then judged on top of it: a kernel less saves
nothing that can be seen where calls wait for Python, and what a compiler merges by itself need not be written. On a
CPU a change to what is compiled takes a minute to be judged, and seconds to what is not: compiling comes in its turn,
and time is kept for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.records.measurements import SessionStart
from agent.state import RunState
from agent.step_names import STEPS

COMPILING = "compile_model"
FIRST = (COMPILING, "capture_graph")  # steps that may come right after the baseline


def first(known: SessionStart, delta: float, *, on_gpu: bool, waits: bool) -> str:
    """The step to begin with; empty where it is the one after the baseline.

    A call that no mode of torch.compile runs, and in which a device `waits` for Python, is recorded as it is.
    """
    if known.compile_pays(delta):
        return COMPILING if on_gpu else ""
    return "capture_graph" if waits and known.compile_failed and not known.compile else ""


def compiles(step: str) -> bool:
    """Whether a change of this step is judged on what is compiled, in the order of the steps."""
    return STEPS.index(step) >= STEPS.index(COMPILING)


def is_early(state: RunState, step: str) -> bool:
    """Whether a step has been put first: its likeliest change is tried, and what else it has in its turn."""
    return step in FIRST and set(state.get("results", {})) == {STEPS[0]}


def promises_more(gains: Mapping[str, float], step: str) -> str:
    """The step of those before compiling that promises the largest gain, where `step` is one of them and promises less;
    else empty.
    """
    before = [name for name in gains if not compiles(name)]
    best = max(before, key=lambda name: gains[name], default=step)
    return best if step in before and gains[best] > gains[step] else ""


def following(state: RunState) -> str | None:
    """The first step that has not ended; None after the last. One that another went before goes on so."""
    return next((step for step in STEPS if step not in state.get("results", {})), None)


def to_come(state: RunState, step: str, wanted: Collection[str]) -> list[str]:
    """The wanted steps after this one."""
    return [name for name in STEPS if name != step and name in wanted and name not in state.get("results", {})]


def ways(step: str) -> list[str]:
    """Where the run may go when this step has ended."""
    found = list[str]()
    if step == STEPS[0]:
        found += FIRST
    if step in FIRST:
        found.append(STEPS[1])
    if not compiles(step):
        found += [name for name in STEPS[1:] if not compiles(name) and name != step]
    for name in STEPS[STEPS.index(step) + 1 :]:
        found.append(name)
        if name not in FIRST:
            break
    return [*dict.fromkeys([*found, STEPS[-1]])]  # where it was gone back to, the last is next
