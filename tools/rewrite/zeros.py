"""Make memory instead of zeros where all of it is written to before anything reads it.

It refuses zeros that are written to in parts, and anything in between that names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.reading.flow import Block
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import Statement, assigned, find_all, simple_statements
from tools.rewrite.sites import at_frame

_INSTEAD = {"zeros": "empty", "zeros_like": "empty_like", "new_zeros": "new_empty"}


def find(observation: Observation) -> list[Site]:
    """Places where zeros are made that nothing reads."""
    rows = [row for row in observation.zeros if row.frames]
    return [at_frame("zeros", row.frames[0], row.share, count=row.count) for row in rows]


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    body = Block(source, source.function_at(site.line), site.line).body
    for index, statement in enumerate(body):
        value = assigned(statement) if source.spans(statement, site.line) else None
        if value is None or len(value[0]) != 1 or not isinstance(value[1], cst.Call):
            continue
        (name,), call = value[0], value[1]
        if not _is_written_whole(body[index + 1 :], name):
            raise CannotRewrite(f"{name} is not written to as a whole before it is used")
        source.replace(call, call.with_changes(func=_empty(source, call)))
        return {source.path: source.result()}
    raise CannotRewrite(f"the zeros at {source.path}:{site.line} are not assigned to a name")


def _empty(source: SourceFile, call: cst.Call) -> cst.BaseExpression:
    """`torch.empty` for `torch.zeros`. Raises: CannotRewrite."""
    function = call.func
    name = function.attr.value if isinstance(function, cst.Attribute) else ""
    of_torch = source.qualified(function).startswith("torch.")
    if name not in _INSTEAD or not isinstance(function, cst.Attribute) or of_torch != (name != "new_zeros"):
        raise CannotRewrite(f"{source.code(call)} is no zeros of torch's")
    return function.with_changes(attr=cst.Name(_INSTEAD[name]))


def _is_written_whole(after: Sequence[Statement], name: str) -> bool:
    """Whether the first statement that names it writes all of it, whatever its size."""
    for statement in after:
        mentions = [n for n in find_all(statement, cst.Name) if n.value == name]
        if not mentions:
            if find_all(statement, cst.Return) or not isinstance(statement, cst.SimpleStatementLine):
                return False  # what may leave by another way is not followed
            continue
        return len(mentions) == 1 and _writes(statement, name)
    return False


def _writes(statement: Statement, name: str) -> bool:
    for assign in simple_statements(statement, cst.Assign):
        target = assign.targets[0].target
        if len(assign.targets) == 1 and isinstance(target, cst.Subscript) and _is(target.value, name):
            return all(_is_everything(element.slice) for element in target.slice)
    for expression in simple_statements(statement, cst.Expr):
        call = expression.value
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and _is(call.func.value, name):
            return call.func.attr.value == "copy_"
    return False


def _is(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _is_everything(part: cst.BaseSlice) -> bool:
    """`:` or `...`."""
    if isinstance(part, cst.Index):
        return isinstance(part.value, cst.Ellipsis)
    return isinstance(part, cst.Slice) and part.lower is None and part.upper is None and part.step is None
