"""The graph of a run: ten nodes and the `climb` subgraph. The only file that imports langgraph.

Connects functions of `steps/` and `climb.py`; its only logic is which node comes next.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

# before the import: checkpoints deserialise only known types, and nothing is traced to a service
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from agent import climb as climbing
from agent import schedule
from agent.context import RunContext
from agent.errors import RunDamaged
from agent.state import RunState, Update
from agent.step_names import STEPS
from agent.steps import CLIMBING, STEP_NODES

RECURSION_LIMIT = 10_000  # nodes per run; the actual limits are in the configuration
_CONFIG: Any = {"configurable": {"thread_id": "run"}, "recursion_limit": RECURSION_LIMIT}
_PRIMARY = 0xFF  # of SQLite's result codes: the rest says more (sqlite.org, "Result and Error Codes")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _node(function: Callable[[RunState, RunContext], Update]) -> Any:
    """The form that langgraph calls, with the context in a runtime."""

    def run(state: RunState, runtime: Runtime[RunContext]) -> Update:
        return function(state, runtime.context)

    run.__name__ = function.__name__
    return run


def _climb_graph() -> Any:
    """propose → apply → verify → measure → decide → (diagnose | commit) → propose"""
    graph = StateGraph(RunState, context_schema=RunContext)
    for function in (
        climbing.propose,
        climbing.apply,
        climbing.verify,
        climbing.measure,
        climbing.decide,
        climbing.commit,
        climbing.diagnose,
    ):
        graph.add_node(function.__name__, _node(function))
    graph.add_edge(START, "propose")
    graph.add_conditional_edges("propose", lambda s: "apply" if s["attempt"] else END, {"apply": "apply", END: END})
    for here, there in (("apply", "verify"), ("verify", "measure")):
        graph.add_conditional_edges(here, lambda s, t=there: "decide" if s["verdict"] else t, [there, "decide"])
    graph.add_edge("measure", "decide")
    graph.add_conditional_edges(
        "decide", lambda s: "commit" if s["verdict"] == "kept" else "diagnose", ["commit", "diagnose"]
    )
    graph.add_edge("commit", "propose")
    graph.add_conditional_edges("diagnose", lambda s: "apply" if s["attempt"] else "propose", ["apply", "propose"])
    return graph.compile()


def _after_step(state: RunState) -> str:
    if state.get("climbing"):
        return "climb"
    if state.get("goto"):
        return state["goto"]
    return schedule.following(state) or END


def _after_climb(state: RunState) -> str:
    """Back to the step that asked for the climb, which sums it up."""
    return state["step"]


def build(checkpointer: Any = None) -> Any:
    graph = StateGraph(RunState, context_schema=RunContext)
    for name in STEPS:
        graph.add_node(name, _node(STEP_NODES[name]))
    graph.add_node("climb", _climb_graph())
    graph.add_edge(START, STEPS[0])
    for name in STEPS:
        ways = ["climb"] if name in CLIMBING else []
        ways += [*CLIMBING[:-1], END] if name == STEPS[-1] else schedule.ways(name)  # back where the bottleneck moved
        graph.add_conditional_edges(name, _after_step, ways)
    graph.add_conditional_edges("climb", _after_climb, list(CLIMBING))
    return graph.compile(checkpointer=checkpointer)


def mermaid() -> str:
    """The graph as Mermaid text, the climb unfolded."""
    return str(build().get_graph(xray=True).draw_mermaid())


@contextmanager
def _checkpointer(path: Path) -> Iterator[SqliteSaver]:
    try:
        with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
            yield SqliteSaver(connection)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & _PRIMARY not in _DAMAGED:
            raise
        raise RunDamaged(
            f"{path} is damaged: {error}.",
            hint="Remove it and resume: the steps are walked again, on top of what was proven, which is kept.",
        ) from error


def walk(context: RunContext, checkpoint: Path) -> RunState:
    """Walk the graph from the start, or from where the checkpoint left it.

    Raises: RunDamaged, RatchetError.
    """
    with _checkpointer(checkpoint) as saver:
        graph = build(saver)
        known = graph.get_state(_CONFIG).values
        start: RunState | None = None if known else {"results": {}, "shadow": []}
        result: RunState = graph.invoke(start, _CONFIG, context=context, durability="sync")
        return result


def where_it_ended(checkpoint: Path) -> RunState:
    """The state of a walk that was interrupted. Raises: RunDamaged."""
    with _checkpointer(checkpoint) as saver:
        known: RunState = build(saver).get_state(_CONFIG).values
        return known
