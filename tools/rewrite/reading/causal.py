"""Prove from the source that a mask is exactly causal, and square: which size it has.

A mask is computed as what it holds above the diagonal and what it holds on and below it. What cannot be proved stays an
ordinary mask. The proof looks through names, and into functions of the same file that do nothing but return the mask.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import CONSTANT, is_used
from tools.rewrite.reading.flow import Block, Ref
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.spelling import argument, integer, masked_fill, method, where
from tools.rewrite.reading.syntax import bind, dotted, simple_statements, statements

# methods that change neither side of the diagonal, but for what a change to bool makes of it
_NAMES = "to bool float half bfloat16 type unsqueeze view reshape expand contiguous type_as"
_SAME = frozenset(_NAMES.split())
_HALVES: dict[type[cst.CSTNode], Callable[[Any, Any], Any]] = {
    cst.Multiply: operator.mul,
    cst.Subtract: operator.sub,
    cst.Equal: operator.eq,
    cst.NotEqual: operator.ne,
}
_INFINITIES = ('float("-inf")', '-float("inf")', "-math.inf", "-torch.inf", "-np.inf", "-numpy.inf")
_LARGE = 1e4  # as good as infinite after a softmax


@dataclass(frozen=True)
class Halves:
    """What a (size, size) matrix holds above its diagonal, and on and below it. A number holds it everywhere."""

    size: str | None  # source text; None for a number
    above: float | bool
    below: float | bool


def causal(block: Block, ref: Ref, keep: str) -> str | None:
    """The size of the mask, as source text, if it is causal and square; None when that is not proved.

    `keep`: "zero" for a mask that is added, "false" where False keeps (masked_fill), "true" where True keeps.
    """
    found = _halves(block, ref)
    if found is None:
        return None
    if keep == "zero":
        return found.size if found.above <= -_LARGE and found.below == 0 else None
    return found.size if found.above is (keep == "false") and found.below is (keep == "true") else None


def is_blocking(source: SourceFile, node: cst.CSTNode) -> bool:
    """Whether an expression is minus infinity, or as good as that after a softmax."""
    value = _number(source, node)
    return value is not None and value <= -_LARGE


def is_infinite(source: SourceFile, node: cst.CSTNode) -> bool:
    return _number(source, node) == -math.inf


def _number(source: SourceFile, node: cst.CSTNode) -> float | None:
    text = source.code(node).replace("'", '"').replace(" ", "")
    if text in _INFINITIES:
        return -math.inf
    if text.startswith("torch.finfo(") and text.endswith(").min"):
        return -65504.0  # of float16, the smallest of them
    if text in ("True", "False"):
        return text == "True"
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = _number(source, node.expression)
        return None if inner is None else -inner
    return node.evaluated_value if isinstance(node, (cst.Float, cst.Integer)) else None


def _halves(block: Block, ref: Ref) -> Halves | None:
    """What an expression holds; None where that is not known."""
    ref = block.resolve(ref)
    if ref.item is not None or ref.when is not None:
        return None
    source, node = block.source, ref.expr
    if (value := _number(source, node)) is not None:
        return Halves(None, value, value)

    def of(expr: cst.BaseExpression) -> Halves | None:
        return _halves(block, Ref(expr, ref.at))

    if isinstance(node, cst.Subscript):
        adds_dimensions = all(source.code(e.slice) in ("None", ":", "...") for e in node.slice)
        return of(node.value) if adds_dimensions else None
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return _by_halves(lambda x: not x if isinstance(x, bool) else math.nan, of(node.expression))
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        compare, (other,) = _HALVES.get(type(node.comparisons[0].operator)), node.comparisons
        return _by_halves(compare, of(node.left), of(other.comparator)) if compare else None
    if isinstance(node, cst.BinaryOperation):
        compute = _HALVES.get(type(node.operator))
        return _by_halves(compute, of(node.left), of(node.right)) if compute else None
    if not isinstance(node, cst.Call):
        return None
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in _SAME and not source.qualified(node.func):
        to_bool = node.func.attr.value == "bool" or any(source.code(a.value) == "torch.bool" for a in node.args)
        return _by_halves(bool if to_bool else lambda x: x, of(node.func.value))
    if (cut := method(source, node, "triu", "tril")) is not None:
        return _cut(of(cut[0]), argument(cut[1], cut[2], "diagonal"), method(source, node, "triu") is not None)
    if (filled := masked_fill(source, node)) is not None:
        return _by_halves(_fill, *map(of, filled))
    if (chosen := where(source, node)) is not None:
        return _by_halves(lambda condition, a, b: _fill(b, condition, a), *map(of, chosen))
    return _made(source, node) or _called(block, ref.at, node)


def _by_halves(compute: Callable[..., Any], *given: Halves | None) -> Halves | None:
    """What an operation on each element makes of these."""
    known = [each for each in given if each is not None]
    sizes = {each.size for each in known if each.size is not None}
    if len(known) < len(given) or len(sizes) > 1:
        return None
    above, below = compute(*(each.above for each in known)), compute(*(each.below for each in known))
    is_known = above == above and below == below  # 0 * -inf, for one, is not a number
    return Halves(next(iter(sizes), None), above, below) if is_known else None


def _fill(value: float, condition: float, filled: float) -> float:
    if not isinstance(condition, bool):
        return math.nan
    return filled if condition else value


def _cut(square: Halves | None, diagonal: cst.CSTNode | None, upper: bool) -> Halves | None:
    """triu(x, 1) and tril(x): at another diagonal the halves do not keep apart."""
    offset = 0 if diagonal is None else integer(diagonal)
    if square is None or square.size is None or offset != (1 if upper else 0):
        return None
    nothing = type(square.above)(0)
    return Halves(square.size, square.above if upper else nothing, nothing if upper else square.below)


def _made(source: SourceFile, node: cst.Call) -> Halves | None:
    """A constant square: `torch.ones(n, n)`, `torch.zeros(1, n, n)`, `torch.full((n, n), value)`."""
    name = source.qualified(node.func)
    plain: Sequence[cst.BaseExpression] = [a.value for a in node.args if a.keyword is None]
    shape = argument(node, 0, "size")
    if isinstance(shape, (cst.Tuple, cst.List)):
        parts = [source.code(e.value) for e in shape.elements]
    elif name != "torch.full" and len(plain) >= 2:
        parts = [source.code(p) for p in plain]
    else:
        return None
    sizes = [part for part in parts if part != "1"]
    given = argument(node, 1, "fill_value") if name == "torch.full" else None
    value = {"torch.ones": 1.0, "torch.zeros": 0.0}.get(name) if given is None else _number(source, given)
    if value is None or len(sizes) != 2 or sizes[0] != sizes[1] or parts[-2:] != sizes:
        return None
    is_bool = any(a.keyword and a.keyword.value == "dtype" and source.code(a.value) == "torch.bool" for a in node.args)
    value = bool(value) if is_bool else value
    return Halves(sizes[0], value, value)


def _called(block: Block, at: int, node: cst.Call) -> Halves | None:
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
    found = _halves(inner, Ref(returned[0].value, len(body) - 1))
    texts = dict(zip(names, (source.code(a.value) for a in arguments), strict=True))
    if found is None or found.size not in texts or not inner.is_stable({found.size}, 0, len(body)):
        return None
    return Halves(texts[found.size], found.above, found.below)
