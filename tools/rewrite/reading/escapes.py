"""Which tensors somebody else may write to or see: changed in place, handed out, or sharing memory with one that is.

It goes by names within one function, and knows what torch's own methods give back. What another function does with what
it is given, and whether it answers with that, it does not know: such arguments count for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import libcst as cst

from tools.rewrite.reading.syntax import base_name, dotted, find_all, simple_statements, walk

# methods and functions whose result may lie in the memory of what they are given
_NAMES = """
    adjoint as_strided atleast_1d atleast_2d atleast_3d bfloat16 bool broadcast_to chunk conj contiguous cpu cuda data
    detach diagonal double dsplit expand expand_as flatten float half hsplit imag int long moveaxis movedim narrow numpy
    permute positive ravel real requires_grad_ reshape reshape_as resolve_conj resolve_neg select short split
    split_with_sizes squeeze swapaxes swapdims t tensor_split to transpose type type_as unbind unflatten unfold
    unsqueeze values view view_as view_as_complex view_as_real vsplit
"""
_SHARING = frozenset(_NAMES.split())
_FACTS = frozenset(("shape", "dtype", "device", "ndim", "layout", "itemsize"))  # of a tensor: no part of its memory
_KEEPING = frozenset(("append", "appendleft", "extend", "insert", "setdefault", "update"))
_MODULES = frozenset(("torch", "F", "functional", "nn.functional", "torch.nn.functional"))


def touched(statement: cst.CSTNode) -> set[str]:
    """Names whose tensors a statement changes in place."""
    found = set()
    for node in walk(statement):
        if isinstance(node, cst.AugAssign) or (
            isinstance(node, cst.AssignTarget) and isinstance(node.target, (cst.Subscript, cst.Attribute))
        ):
            found.add(base_name(node.target))
        elif isinstance(node, cst.Call):
            found |= {base_name(changed) for changed in _changed_by(node)}
    return found - {"", "self"}


def _changed_by(call: cst.Call) -> list[cst.BaseExpression]:
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    given = [argument.value for argument in call.args if argument.keyword is None or argument.keyword.value == "input"]
    found = [argument.value for argument in call.args if argument.keyword and argument.keyword.value == "out"]
    if name.endswith("_") and not name.endswith("__") and isinstance(call.func, cst.Attribute):
        found += given[:1] if dotted(call.func.value) in _MODULES else [call.func.value]
    if any(a.keyword and a.keyword.value == "inplace" and dotted(a.value) != "False" for a in call.args):
        found += given[:1]
    return found


def handed_out(statement: cst.CSTNode) -> set[str]:
    """Names whose memory is returned, yielded or stored by a statement, as they are or as part of something else."""
    found: set[str] = set()
    for returned in simple_statements(statement, cst.Return):
        found |= _sharing(returned.value) if returned.value is not None else set()
    for node in walk(statement):
        if isinstance(node, cst.Yield) and isinstance(node.value, cst.BaseExpression):
            found |= _sharing(node.value)
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _KEEPING:
            found |= {name for argument in node.args for name in _sharing(argument.value)}
    for assign in simple_statements(statement, cst.Assign):
        if any(isinstance(t.target, (cst.Attribute, cst.Subscript)) for t in assign.targets):
            found |= _sharing(assign.value)
    for annotated in simple_statements(statement, cst.AnnAssign):
        if annotated.value is not None and isinstance(annotated.target, (cst.Attribute, cst.Subscript)):
            found |= _sharing(annotated.value)
    return found


def escaping(body: cst.CSTNode, inside: Collection[int]) -> set[str]:
    """Names whose tensors a line changes in place or hands out, under that name or another. Lines with an id of
    `inside` may.
    """
    lines = [line for line in find_all(body, cst.SimpleStatementLine) if id(line) not in inside]
    return with_others({name for line in lines for name in touched(line) | handed_out(line)}, body, inside)


def with_others(names: set[str], body: cst.CSTNode, inside: Collection[int] = ()) -> set[str]:
    """The names, and all that may share memory with one of them."""
    given = [pair for node in walk(body) if id(node) not in inside for pair in _given(node)]
    names, before = set(names), 0
    while len(names) != before:
        before = len(names)
        names |= {name for targets, shared in given if targets & names for name in shared}
    return names


def _given(node: cst.CSTNode) -> list[tuple[set[str], set[str]]]:
    """(names, what they may share memory with) that a node binds."""
    if isinstance(node, cst.Assign):
        targets: Sequence[cst.BaseExpression] = [target.target for target in node.targets]
        value: cst.BaseExpression | None = node.value
    elif isinstance(node, (cst.AnnAssign, cst.NamedExpr)):
        targets, value = [node.target], node.value
    elif isinstance(node, cst.For):
        targets, value = [node.target], node.iter
    else:
        return []
    return [({n.value for t in targets for n in find_all(t, cst.Name)}, _sharing(value))] if value is not None else []


def _sharing(value: cst.BaseExpression) -> set[str]:
    """Names with whose tensors the value of an expression may share memory."""
    if isinstance(value, cst.Name):
        return {value.value}
    if isinstance(value, (cst.Tuple, cst.List, cst.Set, cst.Dict)):
        return {name for element in value.elements for name in _sharing(element.value)}
    if isinstance(value, cst.IfExp):
        return _sharing(value.body) | _sharing(value.orelse)
    if isinstance(value, cst.BooleanOperation):
        return _sharing(value.left) | _sharing(value.right)
    if isinstance(value, cst.NamedExpr):
        return _sharing(value.value)
    if isinstance(value, cst.Subscript):
        return _sharing(value.value)
    if isinstance(value, cst.Attribute):
        return set() if value.attr.value in _FACTS else {base_name(value)} - {"self"}
    return _sharing_with_call(value) if isinstance(value, cst.Call) else set()


def _sharing_with_call(call: cst.Call) -> set[str]:
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else dotted(call.func)
    if name[:1].isupper() or name in ("dict", "list", "tuple", "set"):  # a class, of outputs say
        return {part for argument in call.args for part in _sharing(argument.value)}
    if owner is None or name not in _SHARING:
        return set()
    return _sharing(call.args[0].value) if dotted(owner) in _MODULES and call.args else _sharing(owner)
