"""Which tensors other code may write to or see: changed in place, handed out, or sharing memory with one that is.

It goes by names within one function, and knows what torch's own methods give back. What another function does with what
it is given, and whether it answers with that, it does not know: such arguments count for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from tools.rewrite.reading.syntax import assigned, base_name, dotted, find_all, simple_statements, walk, words

# methods and functions whose result may lie in the memory of what they are given
_SHARING = words("""
    adjoint as_strided atleast_1d atleast_2d atleast_3d bfloat16 bool broadcast_to chunk conj contiguous cpu cuda data
    detach diagonal double dsplit expand expand_as flatten float half hsplit imag int long moveaxis movedim narrow
    numpy permute positive ravel real requires_grad_ reshape reshape_as resolve_conj resolve_neg select short split
    split_with_sizes squeeze swapaxes swapdims t tensor_split to transpose type type_as unbind unflatten unfold
    unsqueeze values view view_as view_as_complex view_as_real vsplit
""")
_FACTS = frozenset(("shape", "dtype", "device", "ndim", "layout", "itemsize"))  # of a tensor: no part of its memory
_KEEPING = frozenset(("append", "appendleft", "extend", "insert", "setdefault", "update"))
_PERHAPS_NOTHING = ("drop", "identity")  # in the name of what may give back what it was given, as dropout does in eval
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


def escaping(body: cst.CSTNode, inside: Collection[int] = ()) -> set[str]:
    """Names whose tensors are changed in place, returned, yielded or stored, under that name or another, as they are
    or as part of something else. Nodes with an id of `inside` may do so.
    """
    effects = [effect for effect in _effects(body) if effect.node not in inside]
    names = {name for effect in effects for name in effect.exposed}
    before = -1
    while len(names) != before:
        before = len(names)
        names = names.union(*(effect.shared for effect in effects if effect.bound & names))
    return names


def escapes(name: str, body: cst.BaseSuite, inside: Collection[int], after: Sequence[cst.CSTNode]) -> bool:
    """Whether the tensor that has this name before the statements `after` of a function's body is one of `escaping`.

    Where these, one after the other, give the name to another one, what becomes of that does not count.
    """
    renamed, later = _Renamed(name, f"{name}__before"), list[cst.SimpleStatementLine]()
    for statement in after:
        if not isinstance(statement, cst.SimpleStatementLine):
            break
        value = assigned(statement)
        if value is not None and name in value[0]:
            given = statement.body[0].with_changes(value=value[1].visit(renamed))
            later.append(statement.with_changes(body=[given]))
            return renamed.new in escaping(cst.IndentedBlock([*body.body, *later]), inside)
        later.append(cst.ensure_type(statement.visit(renamed), cst.SimpleStatementLine))
    return name in escaping(body, inside)


class _Renamed(cst.CSTTransformer):
    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.old, self.new = old, new

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=self.new) if original_node.value == self.old else updated_node


@dataclass(frozen=True)
class _Effect:
    """What one node does: names that it exposes, or that it binds to what may share memory with others."""

    node: int
    exposed: set[str]
    bound: set[str]
    shared: set[str]


@lru_cache(maxsize=256)
def _effects(body: cst.CSTNode) -> list[_Effect]:
    found, lists = [], _lists(body)
    for node in walk(body):
        if isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            found.append(_Effect(id(node), touched(node) | _handed_out(node, lists), set(), set()))
        targets, value = _bound(node)
        if isinstance(node, cst.AugAssign) and not _is_list(node.value, lists):
            continue  # of a tensor: that takes the values
        if value is not None:
            bound = {n.value for target in targets for n in find_all(target, cst.Name)}
            found.append(_Effect(id(node), set(), bound, _sharing(value, lists)))
    return found


def _handed_out(line: cst.CSTNode, lists: Collection[str]) -> set[str]:
    """Names whose memory is returned, yielded or stored. `lists` are names of lists and tuples."""
    given: list[cst.BaseExpression | None] = [r.value for r in simple_statements(line, cst.Return)]
    for node in walk(line):
        if isinstance(node, cst.Yield) and isinstance(node.value, cst.BaseExpression):
            given.append(node.value)
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _KEEPING:
            given += [argument.value for argument in node.args]
        elif isinstance(node, (cst.Assign, cst.AnnAssign)):
            targets, value = _bound(node)
            if any(isinstance(target, (cst.Attribute, cst.Subscript)) for target in targets):
                given.append(value)
    return {name for value in given if value is not None for name in _sharing(value, lists)}


def _bound(node: cst.CSTNode) -> tuple[Sequence[cst.BaseExpression], cst.BaseExpression | None]:
    if isinstance(node, cst.Assign):
        return [target.target for target in node.targets], node.value
    if isinstance(node, (cst.AnnAssign, cst.NamedExpr, cst.AugAssign)):
        return [node.target], node.value
    return ([node.target], node.iter) if isinstance(node, (cst.For, cst.CompFor)) else ([], None)


def _lists(body: cst.CSTNode) -> set[str]:
    """Names that are given a list or a tuple somewhere."""
    bound = [_bound(node) for node in walk(body) if not isinstance(node, (cst.For, cst.CompFor))]
    found: set[str] = set()
    before = -1
    while len(found) != before:
        before = len(found)
        for targets, value in bound:
            if value is not None and _is_list(value, found):
                found |= {target.value for target in targets if isinstance(target, cst.Name)}
    return found


def _is_list(value: cst.BaseExpression, lists: Collection[str]) -> bool:
    match value:
        case cst.BinaryOperation(left=one, right=other) | cst.IfExp(body=one, orelse=other):
            return _is_list(one, lists) or _is_list(other, lists)
        case cst.Name(value=name):
            return name in lists
        case cst.Call(func=function):
            return dotted(function) in ("list", "tuple")
    return isinstance(value, (cst.Tuple, cst.List, cst.ListComp))


def _sharing(value: cst.BaseExpression, lists: Collection[str]) -> set[str]:
    """Names with whose tensors the value of an expression may share memory."""
    match value:
        case cst.Name(value=name):
            return {name}
        case cst.Attribute():
            return set() if value.attr.value in _FACTS else {base_name(value)} - {"self"}
        case cst.Call():
            parts = _shared_by_call(value)
        case cst.BinaryOperation():
            parts = [value.left, value.right] if _is_list(value, lists) else []
        case cst.Tuple() | cst.List() | cst.Set() | cst.Dict():
            parts = [element.value for element in value.elements]
        case cst.IfExp():
            parts = [value.body, value.orelse]
        case cst.BooleanOperation():
            parts = [value.left, value.right]
        case cst.Subscript() | cst.NamedExpr():
            parts = [value.value]
        case cst.BaseSimpleComp():
            parts = [value.elt, value.for_in.iter]
        case cst.DictComp():
            parts = [value.value, value.for_in.iter]
        case _:
            parts = []
    return {name for part in parts for name in _sharing(part, lists)}


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
