"""Recognise one operation in its usual spellings: products, transposes, softmax, casts, scales, fills, repeats.

Each answers None for what it does not know; none of them looks through names.
"""

from __future__ import annotations

import libcst as cst

from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import dotted, find_all

_CASTS = frozenset(["to", "float", "half", "bfloat16", "type", "type_as", "contiguous"])


def argument(call: cst.Call, position: int, keyword: str) -> cst.BaseExpression | None:
    """An argument by keyword, else by position; None when it is not given."""
    for given in call.args:
        if given.keyword is not None and given.keyword.value == keyword:
            return given.value
    plain = [given for given in call.args if given.keyword is None]
    if any(given.star for given in call.args) or position >= len(plain) or position < 0:
        return None
    return plain[position].value


def method(source: SourceFile, node: cst.CSTNode, *names: str) -> tuple[cst.BaseExpression, cst.Call, int] | None:
    """(tensor, call, position of the first further argument) of `x.name(...)` or `torch.name(x, ...)`."""
    if not isinstance(node, cst.Call):
        return None
    qualified = source.qualified(node.func)
    for prefix in ("torch.nn.functional.", "torch."):
        if qualified.startswith(prefix) and qualified.removeprefix(prefix) in names:
            first = argument(node, 0, "input")
            return (first, node, 1) if first is not None else None
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in names and not qualified:
        return node.func.value, node, 0
    return None


def product(
    source: SourceFile, node: cst.CSTNode, grouped: str
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """(a, b) of a batched matrix product. `grouped` is the name of `grouped_matmul` in this file, or empty."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
        return node.left, node.right
    if isinstance(node, cst.Call) and grouped and dotted(node.func) == grouped and len(node.args) == 2:
        return node.args[0].value, node.args[1].value
    found = method(source, node, "matmul", "bmm")
    if found is not None:
        a, call, rest = found
        b = argument(call, rest, "other") or argument(call, rest, "mat2")
        return (a, b) if b is not None else None
    return None


def einsum(source: SourceFile, node: cst.CSTNode) -> tuple[str, cst.BaseExpression, cst.BaseExpression] | None:
    """(equation, a, b) of a two-operand einsum, blanks removed."""
    if not isinstance(node, cst.Call) or source.qualified(node.func) != "torch.einsum" or len(node.args) != 3:
        return None
    equation = node.args[0].value
    if not isinstance(equation, cst.SimpleString):
        return None
    return str(equation.evaluated_value).replace(" ", ""), node.args[1].value, node.args[2].value


def transposed(source: SourceFile, node: cst.CSTNode) -> cst.BaseExpression | None:
    """x of `x` with its last two dimensions exchanged."""
    if isinstance(node, cst.Attribute) and node.attr.value == "mT":
        return node.value
    found = method(source, node, "transpose", "swapaxes", "swapdims")
    if found is not None:
        tensor, call, rest = found
        dims = {integer(argument(call, rest, "dim0")), integer(argument(call, rest + 1, "dim1"))}
        return tensor if dims in ({-1, -2}, {2, 3}, {-2, 3}, {2, -1}) else None
    found = method(source, node, "permute")
    if found is not None:
        tensor, call, rest = found
        given = [integer(a.value) for a in call.args[rest:]]
        return tensor if given in ([0, 1, 3, 2], [0, 1, -1, -2]) else None
    return None


def softmax(source: SourceFile, node: cst.CSTNode) -> cst.BaseExpression | None:
    """x of a softmax over the last dimension, by a function or by a module that the file makes as one."""
    if isinstance(node, cst.Call) and dotted(node.func).startswith("self.") and len(node.args) == 1:
        made = [each.value for each in find_all(source.module, cst.Assign) if _assigns(each, dotted(node.func))]
        return node.args[0].value if made and all(_is_last_softmax(source, each) for each in made) else None
    found = method(source, node, "softmax")
    if found is None:
        return None
    tensor, call, rest = found
    return tensor if integer(argument(call, rest, "dim")) in (-1, 3) else None


def _assigns(node: cst.Assign, name: str) -> bool:
    return any(dotted(target.target) == name for target in node.targets)


def _is_last_softmax(source: SourceFile, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call) or source.qualified(node.func) != "torch.nn.Softmax":
        return False
    return integer(argument(node, 0, "dim")) in (-1, 3)


def cast(source: SourceFile, node: cst.CSTNode) -> cst.BaseExpression | None:
    """x of a change of dtype or layout."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _CASTS:
        return node.func.value if not source.qualified(node.func) else None
    return None


def masked_fill(
    source: SourceFile, node: cst.CSTNode
) -> tuple[cst.BaseExpression, cst.BaseExpression, cst.BaseExpression] | None:
    """(x, condition, value) of `x.masked_fill(condition, value)`."""
    found = method(source, node, "masked_fill", "masked_fill_")
    if found is None:
        return None
    tensor, call, rest = found
    condition, value = argument(call, rest, "mask"), argument(call, rest + 1, "value")
    return (tensor, condition, value) if condition is not None and value is not None else None


def where(
    source: SourceFile, node: cst.CSTNode
) -> tuple[cst.BaseExpression, cst.BaseExpression, cst.BaseExpression] | None:
    """(condition, x, value) of `torch.where(condition, x, value)`."""
    if not isinstance(node, cst.Call) or source.qualified(node.func) != "torch.where" or len(node.args) != 3:
        return None
    return node.args[0].value, node.args[1].value, node.args[2].value


def dropout(source: SourceFile, node: cst.CSTNode, modules: set[str]) -> tuple[cst.BaseExpression, str] | None:
    """(x, probability as source text) of dropout. `modules` are the attributes of self that are nn.Dropout."""
    if not isinstance(node, cst.Call):
        return None
    name = dotted(node.func)
    if name.removeprefix("self.") in modules and name.startswith("self.") and len(node.args) == 1:
        return node.args[0].value, f"{name}.p if {name}.training else 0.0"
    if source.qualified(node.func) != "torch.nn.functional.dropout":
        return None
    tensor, p, training = (argument(node, i, k) for i, k in ((0, "input"), (1, "p"), (2, "training")))
    if tensor is None:
        return None
    probability = source.code(p) if p is not None else "0.5"
    if training is None or source.code(training) == "True":
        return tensor, probability
    return tensor, f"{probability} if {source.code(training)} else 0.0"


def activation(source: SourceFile, node: cst.CSTNode) -> tuple[cst.BaseExpression, str] | None:
    """(x, its name as an observer says it) of an activation that is a function of torch; the name is empty where the
    call says more than is known.
    """
    found = method(source, node, "relu", "silu", "gelu")
    if found is None or not isinstance(node, cst.Call):
        return None
    name, more = dotted(node.func).rpartition(".")[2], [source.code(given) for given in node.args[found[2] :]]
    ways = {"": name, "approximate='none'": name, "approximate='tanh'": f"{name}_tanh"}
    return found[0], ways.get(", ".join(more).replace('"', "'").replace(" = ", "="), "")


def integer(node: cst.CSTNode | None) -> int | None:
    if isinstance(node, cst.Integer):
        return node.evaluated_value
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = integer(node.expression)
        return None if inner is None else -inner
    return None
