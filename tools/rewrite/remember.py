"""Remember what a module gave: a part of a model that is called again and again on what does not change.

The call stays where it is and goes through `remembered`, which compares what the result depends on. It refuses calls
by another name than the path in the model, such as those in a loop over layers.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import REMEMBERED, use
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import dotted, find_all, parameters

WORTH = 0.01  # of a call: comparing takes its time


def find(observation: Observation) -> list[Site]:
    """One site for each function that calls such modules."""
    found: dict[tuple[str, int], Site] = {}
    for row in observation.again:
        if not row.frames or row.share < WORTH:
            continue
        frame = row.frames[0]
        old = found.get((frame.file, frame.first_line))
        calls = [*(old.detail["calls"] if old else []), {"line": frame.line, "attribute": row.attribute}]
        found[frame.file, frame.first_line] = Site(
            kind="again",
            file=frame.file,
            line=frame.first_line,
            line_end=max(call["line"] for call in calls),
            module_class=frame.owner,
            third_party=frame.third_party,
            share=row.share + ((old.share if old else 0) or 0),
            detail={
                "module": frame.module,
                "function": frame.function,
                "calls": calls,
                "constant": row.constant and (not old or old.detail["constant"]),
            },
        )
    return sorted(found.values(), key=lambda site: -(site.share or 0))


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.detail["calls"][0]["line"])
    this = next((parameter.name.value for parameter in parameters(function)), "")
    used = use(source, REMEMBERED, site.detail["module"])
    for wanted in site.detail["calls"]:
        call = _call(source, function, wanted["line"], f"{this}.{wanted['attribute']}")
        source.replace(call, call.with_changes(func=cst.Name(used.name), args=[cst.Arg(call.func), *call.args]))
    return {**used.files, source.path: source.result()}


def _call(source: SourceFile, function: cst.FunctionDef, line: int, name: str) -> cst.Call:
    for call in find_all(function, cst.Call):
        first, last = source.lines(call)
        if first <= line <= last and dotted(call.func) == name:
            return call
    raise CannotRewrite(f"{name} is called by another name at {source.path}:{line}")
