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
from tools.rewrite.reading.syntax import Statement, assigned, find_all
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
        return source.changes()
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
    match statement:
        case cst.SimpleStatementLine(
            body=[
                cst.Assign(targets=[cst.AssignTarget(target=cst.Subscript(value=cst.Name(value=written), slice=parts))])
            ]
        ):
            return written == name and all(_is_everything(part.slice) for part in parts)
        case cst.SimpleStatementLine(
            body=[
                cst.Expr(
                    value=cst.Call(func=cst.Attribute(value=cst.Name(value=written), attr=cst.Name(value="copy_")))
                )
            ]
        ):
            return written == name
    return False


def _is_everything(part: cst.BaseSlice) -> bool:
    """`:` or `...`."""
    match part:
        case cst.Index(value=cst.Ellipsis()) | cst.Slice(lower=None, upper=None, step=None):
            return True
    return False
