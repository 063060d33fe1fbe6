"""Drop copies that nobody needs: a clone that neither side is written to afterwards, a `.contiguous()` with no effect.

A copy stays where it or its source is changed in place anywhere in the function, or leaves the function.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Copies, Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.reading import spelling
from tools.rewrite.reading.memory import escaping
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import assigned, base_name, find_all, simple_statements
from tools.rewrite.sites import at_frame, by_function

# what takes any strides, so that a dense copy before it is only a matter of speed
_OPERATIONS = """
    linear matmul bmm addmm softmax layer_norm add sub mul div pow silu gelu relu sigmoid tanh rsqrt mean sum
    conv1d conv2d scaled_dot_product_attention cat
"""
_ANY_STRIDES = frozenset(_OPERATIONS.split())


def find(observation: Observation) -> list[Site]:
    """One site for each function that copies for nothing, with all its copies."""
    found = []
    for rows in by_function(row for row in observation.copies if _is_needless(row)):
        copied = [{"operation": row.operation, "line": row.frames[0].line} for row in rows]
        share = sum(row.share for row in rows)
        found.append(at_frame("copies", rows[-1].frames[0], share, copies=copied))
    return found


def _is_needless(record: Copies) -> bool:
    if record.needed:
        return False
    if record.operation == "clone":
        return True
    # one that copied may still have been worth it; one that had no effect cannot have been
    had_no_effect = record.operation == "contiguous" and record.same == record.count
    return had_no_effect and bool(record.users) and set(record.users) <= _ANY_STRIDES


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents; copies that must stay are left, and it raises CannotRewrite when all must."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.line)
    reasons = []
    dropped = 0
    for copy in site.detail["copies"]:
        try:
            dropped += _drop(source, function, copy["operation"], copy["line"])
        except CannotRewrite as reason:
            reasons.append(str(reason))
    if not dropped:
        raise CannotRewrite("; ".join(reasons) or "the copies were not found in the source")
    return source.changes()


def _drop(source: SourceFile, function: cst.FunctionDef, operation: str, line: int) -> int:
    for statement in source.at(line, function.body, cst.SimpleStatementLine):
        for call in find_all(statement, cst.Call):
            found = spelling.method(source, call, operation)
            if found is None or len(call.args) != found[2]:
                continue
            if operation == "clone":
                _check_clone(function, statement, call, found[0])
            source.replace(call, source.edited(found[0]))
            return 1
    return 0


def _check_clone(
    function: cst.FunctionDef, statement: cst.SimpleStatementLine, call: cst.Call, copied: cst.BaseExpression
) -> None:
    value = assigned(statement)
    names = {base_name(copied), *(value[0] if value is not None else ())}
    returned = [r.value for r in simple_statements(statement, cst.Return)]
    if call in returned or any(isinstance(r, (cst.Tuple, cst.List, cst.Dict)) for r in returned):
        raise CannotRewrite("the copy is returned")
    if names & escaping(function.body):
        raise CannotRewrite(f"{', '.join(sorted(names))} is changed in place or leaves the function")
