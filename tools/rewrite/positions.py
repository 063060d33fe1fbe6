"""Take positions before a linear layer instead of after it: `head(x[:, -1])` for `head(x)[:, -1]`.

A linear layer treats each position by itself. It refuses what indexes the last dimension, or by anything but whole
numbers and slices, and a result that is used for more than its positions.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.reading.flow import Block
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import assigned, dotted, find_all


def find(observation: Observation) -> list[Site]:
    """Places that take some positions of what a linear layer gave for all."""
    return [
        Site(
            kind="positions",
            file=row.frames[0].file,
            line=row.frames[0].line,
            line_end=row.frames[0].line,
            module_class=row.frames[0].owner,
            third_party=row.frames[0].third_party,
            share=row.share,
            detail={"rank": row.rank, "kept": row.kept, "function": row.frames[0].function, "count": row.count},
        )
        for row in observation.positions
        if row.frames
    ]


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.line)
    for taken in find_all(function, cst.Subscript):
        first, last = source.lines(taken)
        if not first <= site.line <= last:
            continue
        call = taken.value if isinstance(taken.value, cst.Call) else _call_before(source, function, taken)
        if call is None or not dotted(call.func).startswith("self.") or not _is_one_tensor(call):
            continue
        _check_positions(taken, site.detail["rank"])
        given = call.args[0].value
        inner = cst.Subscript(value=given, slice=taken.slice)
        if taken.value is call:
            source.replace(taken, call.with_changes(args=[cst.Arg(inner)]))
        else:
            source.replace(given, inner)
            source.replace(taken, taken.value)
        return {source.path: source.result()}
    raise CannotRewrite(f"what takes positions at {source.path}:{site.line} is not understood")


def _call_before(source: SourceFile, function: cst.FunctionDef, taken: cst.Subscript) -> cst.Call | None:
    """The call that gave the name whose positions are taken, when nothing else reads it."""
    if not isinstance(taken.value, cst.Name):
        return None
    name, block = taken.value.value, Block(source, function, source.lines(taken)[0])
    at = block.index(taken)
    found = block.definition(name, at)
    if found is None or not isinstance(found.expr, cst.Call) or found.item is not None or found.when is not None:
        return None
    rebound = (value := assigned(block.body[at])) is not None and name in value[0]
    others = [n for n in find_all(function, cst.Name) if n.value == name and n is not taken.value]
    later = [n for n in others if source.lines(n)[0] > source.lines(block.body[at])[1]]
    if len(others) - len(later) != (2 if rebound else 1) or (later and not rebound):
        raise CannotRewrite(f"{name} is used for more than its positions")
    bounds = {n for element in taken.slice for n in source.loads(element)}
    if not block.is_stable(bounds, found.at, at):
        raise CannotRewrite(f"the positions that are taken of {name} are not known before it is computed")
    return found.expr


def _is_one_tensor(call: cst.Call) -> bool:
    return len(call.args) == 1 and call.args[0].keyword is None and not call.args[0].star


def _check_positions(taken: cst.Subscript, rank: int) -> None:
    """Raises: CannotRewrite for an index that reaches the last dimension, or that could be a tensor."""
    for element in taken.slice:
        if isinstance(element.slice, cst.Index) and not _is_whole_number(element.slice.value):
            raise CannotRewrite("positions are taken by more than whole numbers and slices")
    last = taken.slice[-1].slice
    full = isinstance(last, cst.Slice) and last.lower is None and last.upper is None and last.step is None
    if len(taken.slice) > rank or (len(taken.slice) == rank and not full):
        raise CannotRewrite("the last dimension is indexed too")


def _is_whole_number(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus):
        value = value.expression
    return isinstance(value, cst.Integer)
