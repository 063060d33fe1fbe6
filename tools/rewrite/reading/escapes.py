"""Which tensors somebody else may write to or see: changed in place, handed out, or sharing memory with one that is.

It goes by names within one function, and knows what torch's own methods give back. What another function does with what
it is given, and whether it answers with that, it does not know: such arguments count for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
_PERHAPS_NOTHING = ("drop", "identity")  # in the name of what may give back what it was given, as dropout does in eval
_SIMPLE = (cst.SimpleStatementLine, cst.SimpleStatementSuite)
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


def handed_out(statement: cst.CSTNode, lists: Collection[str] = ()) -> set[str]:
    """Names whose memory is returned, yielded or stored by a statement, as they are or as part of something else.
    `lists` are names of lists and tuples.
    """
    found: set[str] = set()
    for returned in simple_statements(statement, cst.Return):
        found |= _sharing(returned.value, lists) if returned.value is not None else set()
    for node in walk(statement):
        if isinstance(node, cst.Yield) and isinstance(node.value, cst.BaseExpression):
            found |= _sharing(node.value, lists)
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _KEEPING:
            found |= {name for argument in node.args for name in _sharing(argument.value, lists)}
    for assign in simple_statements(statement, cst.Assign):
        if any(isinstance(t.target, (cst.Attribute, cst.Subscript)) for t in assign.targets):
            found |= _sharing(assign.value, lists)
    for annotated in simple_statements(statement, cst.AnnAssign):
        if annotated.value is not None and isinstance(annotated.target, (cst.Attribute, cst.Subscript)):
            found |= _sharing(annotated.value, lists)
    return found


def escaping(body: cst.CSTNode, inside: Collection[int]) -> set[str]:
    """Names whose tensors a line changes in place or hands out, under that name or another. Lines with an id of
    `inside` may.
    """
    lines = [line for line in _lines(body) if line.number not in inside]
    return _with_others({name for line in lines for name in line.touched | line.handed_out}, body, inside)


def changed(body: cst.CSTNode) -> set[str]:
    """Names whose tensors are changed in place, under that name or another."""
    return _with_others({name for line in _lines(body) for name in line.touched}, body)


def leaving(body: cst.CSTNode) -> set[str]:
    """Names whose tensors are handed out, under that name or another."""
    return _with_others({name for line in _lines(body) for name in line.handed_out}, body)


def _with_others(names: set[str], body: cst.CSTNode, inside: Collection[int] = ()) -> set[str]:
    """The names, and all that may share memory with one of them."""
    given = [(targets, shared) for number, targets, shared in _given(body) if number not in inside]
    before = -1
    while len(names) != before:
        before = len(names)
        names = names.union(*(shared for targets, shared in given if targets & names))
    return names


@dataclass(frozen=True)
class _Line:
    number: int
    touched: set[str]
    handed_out: set[str]


@lru_cache(maxsize=256)
def _lines(body: cst.CSTNode) -> list[_Line]:
    lines, lists = [n for n in walk(body) if isinstance(n, _SIMPLE)], _lists(body)
    return [_Line(id(line), touched(line), handed_out(line, lists)) for line in lines]


@lru_cache(maxsize=256)
def _given(body: cst.CSTNode) -> list[tuple[int, set[str], set[str]]]:
    """(id of a node, names that it binds, what they may share memory with)"""
    found, lists = [], _lists(body)
    for node in walk(body):
        targets, value = _bound(node)
        if isinstance(node, cst.AugAssign) and not _is_list(node.value, lists):
            continue  # of a tensor: that takes the values
        if value is not None:
            found.append((id(node), {n.value for t in targets for n in find_all(t, cst.Name)}, _sharing(value, lists)))
    return found


def _bound(node: cst.CSTNode) -> tuple[Sequence[cst.BaseExpression], cst.BaseExpression | None]:
    if isinstance(node, cst.Assign):
        return [target.target for target in node.targets], node.value
    if isinstance(node, (cst.AnnAssign, cst.NamedExpr, cst.AugAssign)):
        return [node.target], node.value
    return ([node.target], node.iter) if isinstance(node, (cst.For, cst.CompFor)) else ([], None)


@lru_cache(maxsize=256)
def _lists(body: cst.CSTNode) -> set[str]:
    """Names that are given a list or a tuple somewhere."""
    bound = [_bound(node) for node in walk(body) if not isinstance(node, (cst.For, cst.CompFor))]
    found: set[str] = set()
    before = -1
    while len(found) != before:
        before = len(found)
        given = [
            target for targets, value in bound if value is not None and _is_list(value, found) for target in targets
        ]
        found |= {target.value for target in given if isinstance(target, cst.Name)}
    return found


def _is_list(value: cst.BaseExpression, lists: Collection[str]) -> bool:
    if isinstance(value, cst.BinaryOperation):
        return _is_list(value.left, lists) or _is_list(value.right, lists)
    if isinstance(value, cst.IfExp):
        return _is_list(value.body, lists) or _is_list(value.orelse, lists)
    named = isinstance(value, cst.Name) and value.value in lists
    made = isinstance(value, cst.Call) and dotted(value.func) in ("list", "tuple")
    return named or made or isinstance(value, (cst.Tuple, cst.List, cst.ListComp))


def _sharing(value: cst.BaseExpression, lists: Collection[str]) -> set[str]:
    """Names with whose tensors the value of an expression may share memory."""
    if isinstance(value, cst.Name):
        return {value.value}
    if isinstance(value, cst.Subscript):
        return _sharing(value.value, lists)
    if isinstance(value, cst.Attribute):
        return set() if value.attr.value in _FACTS else {base_name(value)} - {"self"}
    if isinstance(value, cst.Call):
        parts = _shared_by_call(value)
    elif isinstance(value, cst.BinaryOperation):
        parts = [value.left, value.right] if _is_list(value, lists) else []
    else:
        parts = _parts(value)
    return {name for part in parts for name in _sharing(part, lists)}


def _parts(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Of an expression that is one of its parts, or holds them."""
    if isinstance(value, (cst.Tuple, cst.List, cst.Set, cst.Dict)):
        return [element.value for element in value.elements]
    if isinstance(value, cst.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, cst.BooleanOperation):
        return [value.left, value.right]
    if isinstance(value, cst.NamedExpr):
        return [value.value]
    if isinstance(value, cst.BaseSimpleComp):
        return [value.elt, value.for_in.iter]
    return [value.value, value.for_in.iter] if isinstance(value, cst.DictComp) else []


def _shared_by_call(call: cst.Call) -> list[cst.BaseExpression]:
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else dotted(call.func)
    given = [argument.value for argument in call.args]
    if name in ("dict", "list", "tuple", "set"):
        return given
    if name[:1].isupper() and (owner is None or base_name(owner) != "self"):  # a class, of outputs say
        return given
    if any(word in name.lower() for word in _PERHAPS_NOTHING):
        return given[:1]
    if owner is None or name not in _SHARING:
        return []
    return given[:1] if dotted(owner) in _MODULES else [owner]
