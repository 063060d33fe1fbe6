"""Prove from the source that a mask is exactly causal, and square: which size it has.

What cannot be proved stays an ordinary mask. The proof looks through names, and into functions of the same file that
do nothing but return the mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import CONSTANT, is_used
from tools.rewrite.reading.flow import Block, Ref
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.spelling import argument, integer, masked_fill, method, where
from tools.rewrite.reading.syntax import bind, dotted, simple_statements, statements

_WRAPPERS = frozenset(
    [
        "to",
        "bool",
        "float",
        "half",
        "bfloat16",
        "type",
        "unsqueeze",
        "view",
        "reshape",
        "expand",
        "contiguous",
        "type_as",
    ]
)


@dataclass(frozen=True)
class Triangle:
    """A (size, size) mask. `marks`: what it holds above the diagonal and what below it."""

    size: str  # source text
    above: str  # "blocked", "true", "false", "one", "zero"
    below: str


def causal(block: Block, ref: Ref, keep: str) -> str | None:
    """The size of the mask, as source text, if it is causal and square; None when that is not proved.

    `keep`: "zero" for a mask that is added, "false" where False keeps (masked_fill), "true" where True keeps.
    """
    found = _triangle(block, ref)
    if found is None:
        return None
    wanted = {"zero": ("blocked", "zero"), "false": ("true", "false"), "true": ("false", "true")}[keep]
    return found.size if (found.above, found.below) == wanted else None


def is_blocking(source: SourceFile, node: cst.CSTNode) -> bool:
    """Whether an expression is minus infinity, or as good as that after a softmax."""
    text = source.code(node).replace("'", '"').replace(" ", "")
    if text in ('float("-inf")', '-float("inf")', "-math.inf", "-torch.inf", "-np.inf", "-numpy.inf"):
        return True
    if text.startswith("torch.finfo(") and text.endswith(").min"):
        return True
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = node.expression
        return isinstance(inner, (cst.Float, cst.Integer)) and float(inner.evaluated_value) >= 1e4
    return False


def is_infinite(source: SourceFile, node: cst.CSTNode) -> bool:
    return is_blocking(source, node) and "inf" in source.code(node).replace("finfo", "")


def _triangle(block: Block, ref: Ref) -> Triangle | None:
    ref = block.resolve(ref)
    if ref.item is not None or ref.when is not None:
        return None
    source, node = block.source, ref.expr

    def inner(expr: cst.BaseExpression) -> Triangle | None:
        return _triangle(block, Ref(expr, ref.at))

    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _WRAPPERS:
        found = None if source.qualified(node.func) else inner(node.func.value)
        to_bool = node.func.attr.value == "bool" or any(source.code(a.value) == "torch.bool" for a in node.args)
        return _as_bool(found) if found is not None and to_bool else found
    if isinstance(node, cst.Subscript):
        return inner(node.value) if _adds_dimensions(source, node) else None
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return _swapped(inner(node.expression))
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        return _compared(source, node, inner(node.left))
    cut = method(source, node, "triu", "tril")
    if cut is not None:
        return _cut(block, ref.at, node, cut)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return _times(source, node, inner(node.left), inner(node.right))
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Subtract):
        found = inner(node.right) if source.code(node.left) in ("1", "1.0") else None
        numbers = found is not None and {found.above, found.below} == {"one", "zero"}
        return Triangle(found.size, found.below, found.above) if found is not None and numbers else None
    filled = masked_fill(source, node)
    if filled is not None:
        return _fill(block, ref.at, *filled)
    chosen = where(source, node)
    if chosen is not None:
        return _where(block, ref.at, *chosen)
    return _call(block, ref.at, node) if isinstance(node, cst.Call) else None


def _cut(block: Block, at: int, node: cst.CSTNode, cut: tuple[cst.BaseExpression, cst.Call, int]) -> Triangle | None:
    """triu(x, 1) and tril(x) of a square of one value."""
    tensor, call, rest = cut
    square = _square(block, Ref(tensor, at))
    if square is None:
        return None
    size, value = square
    diagonal = argument(call, rest, "diagonal")
    offset = 0 if diagonal is None else integer(diagonal)
    upper = method(block.source, node, "triu") is not None
    nothing = {"true": "false", "one": "zero", "blocked": "zero"}[value]
    if upper and offset == 1:
        return Triangle(size, value, nothing)
    if not upper and offset == 0:
        return Triangle(size, nothing, value)
    return None


def _square(block: Block, ref: Ref) -> tuple[str, str] | None:
    """(size, what it holds) of a constant square tensor: ones, or a fill that blocks."""
    ref = block.resolve(ref)
    source, node = block.source, ref.expr
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        for a, b in ((node.left, node.right), (node.right, node.left)):
            found = _square(block, Ref(a, ref.at))
            if found is not None and found[1] == "one" and is_blocking(source, b):
                return found[0], "blocked"
        return None
    if not isinstance(node, cst.Call):
        return None
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("bool", "to", "float"):
        found = None if source.qualified(node.func) else _square(block, Ref(node.func.value, ref.at))
        to_bool = node.func.attr.value == "bool" or any(source.code(a.value) == "torch.bool" for a in node.args)
        return (found[0], "true") if found is not None and to_bool and found[1] == "one" else found
    name = source.qualified(node.func)
    size = _size(source, node, name)
    if size is None:
        return None
    is_bool = any(a.keyword and a.keyword.value == "dtype" and source.code(a.value) == "torch.bool" for a in node.args)
    if name == "torch.ones":
        return size, "true" if is_bool else "one"
    value = argument(node, 1, "fill_value")
    if name == "torch.full" and value is not None:
        if source.code(value) in ("True", "1", "1.0"):
            return size, "true" if is_bool or source.code(value) == "True" else "one"
        return (size, "blocked") if is_blocking(source, value) else None
    return None


def _size(source: SourceFile, node: cst.Call, name: str) -> str | None:
    plain = [a.value for a in node.args if a.keyword is None]
    shape = argument(node, 0, "size")
    if isinstance(shape, (cst.Tuple, cst.List)):
        parts = [source.code(e.value) for e in shape.elements]
    elif name == "torch.ones" and len(plain) >= 2:
        parts = [source.code(p) for p in plain]
    else:
        return None
    sizes = [p for p in parts if p != "1"]
    return sizes[0] if len(sizes) == 2 and sizes[0] == sizes[1] and parts[-2:] == sizes else None


def _fill(
    block: Block, at: int, tensor: cst.BaseExpression, condition: cst.BaseExpression, value: cst.BaseExpression
) -> Triangle | None:
    """zeros.masked_fill(triangle, -inf), and triangle.masked_fill(triangle == 1, -inf) of a triangle of ones."""
    where_filled = _as_bool(_triangle(block, Ref(condition, at)))
    if where_filled is None or not is_blocking(block.source, value) or where_filled.above != "true":
        return None
    base = block.resolve(Ref(tensor, at))
    zeros = isinstance(base.expr, cst.Call) and block.source.qualified(base.expr.func) == "torch.zeros"
    below = _triangle(block, Ref(tensor, at))
    return Triangle(where_filled.size, "blocked", "zero") if zeros or (below and below.below == "zero") else None


def _where(
    block: Block, at: int, condition: cst.BaseExpression, a: cst.BaseExpression, b: cst.BaseExpression
) -> Triangle | None:
    """where(allowed, 0.0, -inf) and where(blocked, -inf, 0.0)."""
    found = _as_bool(_triangle(block, Ref(condition, at)))
    source = block.source
    if found is None:
        return None
    if found.below == "true" and source.code(a) in ("0", "0.0") and is_blocking(source, b):
        return Triangle(found.size, "blocked", "zero")
    if found.above == "true" and source.code(b) in ("0", "0.0") and is_blocking(source, a):
        return Triangle(found.size, "blocked", "zero")
    return None


def _compared(source: SourceFile, node: cst.Comparison, found: Triangle | None) -> Triangle | None:
    comparison = node.comparisons[0]
    text = source.code(comparison.comparator)
    if (
        found is None
        or not isinstance(comparison.operator, (cst.Equal, cst.NotEqual))
        or text not in ("0", "1", "False", "True")
    ):
        return None
    found = _as_bool(found)
    if found is None:
        return None
    keeps = (text in ("1", "True")) == isinstance(comparison.operator, cst.Equal)
    return found if keeps else _swapped(found)


def _times(
    source: SourceFile, node: cst.BinaryOperation, left: Triangle | None, right: Triangle | None
) -> Triangle | None:
    """A triangle of ones times a large negative number."""
    for found, factor in ((left, node.right), (right, node.left)):
        # 0 * -inf is not a number, so only a finite factor makes a mask
        if (
            found is not None
            and found.above == "one"
            and is_blocking(source, factor)
            and not is_infinite(source, factor)
        ):
            return Triangle(found.size, "blocked", "zero")
    return None


def _as_bool(found: Triangle | None) -> Triangle | None:
    if found is None:
        return None
    names = {"one": "true", "zero": "false", "true": "true", "false": "false"}
    if found.above not in names or found.below not in names:
        return None
    return Triangle(found.size, names[found.above], names[found.below])


def _swapped(found: Triangle | None) -> Triangle | None:
    found = _as_bool(found)
    return Triangle(found.size, found.below, found.above) if found is not None else None


def _adds_dimensions(source: SourceFile, node: cst.Subscript) -> bool:
    return all(source.code(e.slice) in ("None", ":", "...") for e in node.slice)


def _call(block: Block, at: int, node: cst.Call) -> Triangle | None:
    """A function of this file that only makes the mask, called directly or through `constant(function, ...)`."""
    source, arguments, name = block.source, list(node.args), dotted(node.func)
    if arguments and name and name == is_used(source, CONSTANT):
        name, arguments = source.code(arguments[0].value), arguments[1:]
    function = source.function(name)
    if function is None or "." in name:
        return None
    try:
        body = statements(function)
        names = bind(function, node.with_changes(args=arguments))
    except CannotRewrite:
        return None
    returned = simple_statements(body[-1], cst.Return)
    if not returned or returned[0].value is None or sum(len(simple_statements(s, cst.Return)) for s in body) != 1:
        return None
    inner = Block(source, function, source.lines(body[-1])[0])
    found = _triangle(inner, Ref(returned[0].value, len(body) - 1))
    texts = dict(zip(names, (source.code(a.value) for a in arguments), strict=True))
    if found is None or found.size not in texts or not inner.is_stable({found.size}, 0, len(body)):
        return None
    return Triangle(texts[found.size], found.above, found.below)
