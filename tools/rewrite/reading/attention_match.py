"""Recognise softmax(Q K^T * scale + mask) V in the statements of one block, whatever the names and the spelling.

It only reads. What does not match, or only nearly, raises `CannotRewrite` with what was in the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from tools.rewrite import CannotRewrite
from tools.rewrite.reading import spelling
from tools.rewrite.reading.analysis import Analysis, Kind
from tools.rewrite.reading.flow import Block, Ref
from tools.rewrite.reading.syntax import base_name, dotted, names_in, walk


@dataclass(frozen=True)
class Mask:
    """One mask of the scores. `form`: "added", or "filled" where `ref` is True, or "kept" where it is True."""

    form: str
    ref: Ref
    value: cst.BaseExpression | None = None  # what is filled in
    when: cst.BaseExpression | None = None  # applied only if this is not None


@dataclass
class Attention:
    """What was matched. Indices count statements of `block`."""

    block: Block
    node: cst.BaseExpression  # the product with V: what a fused call replaces
    at: int
    values: cst.BaseExpression
    product: cst.BaseExpression  # Q K^T
    product_at: int
    queries: cst.BaseExpression
    keys: cst.BaseExpression
    keys_are_transposed: bool  # `keys` stands for K^T as it is
    factors: list[tuple[str, cst.BaseExpression, int]] = field(default_factory=list)  # ("mul" or "div", factor, at)
    masks: list[Mask] = field(default_factory=list)  # innermost first
    dropout: str = ""
    visited: set[int] = field(default_factory=set)

    def check_stable(self, node: cst.CSTNode, since: int, what: str) -> None:
        """Raises: CannotRewrite where its names may mean something else at the product with V."""
        if not self.block.is_stable(names_in(node), since, self.at):
            raise CannotRewrite(f"{what} changes before the product with V")


class Matcher:
    def __init__(self, analysis: Analysis, grouped: str, dropouts: Sequence[str]) -> None:
        self.analysis, self.source, self.function = analysis, analysis.source, analysis.function
        self.grouped, self.dropouts = grouped, set(dropouts)

    def match(self, line: int) -> Attention:
        """The attention whose softmax stands in the block of this line. Raises: CannotRewrite."""
        block = Block(self.source, self.function, line)
        for at, statement in enumerate(block.body):
            for node in walk(statement) if isinstance(statement, cst.SimpleStatementLine) else ():
                pair = self._product(node)
                if pair is None or not isinstance(node, cst.BaseExpression):
                    continue
                self._visited, self._dropout = set[int](), ""
                scores = self._probabilities(block, Ref(pair[0], at))
                if scores is not None:
                    return self._complete(block, node, at, pair[1], scores)
        raise CannotRewrite(f"no product with the softmax of {self.function.name.value} was recognised")

    def _product(self, node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        pair = spelling.product(self.source, node, self.grouped)
        if pair is None and (found := spelling.einsum(self.source, node)) is not None:
            return (found[1], found[2]) if _contracts(found[0], transposed=False) else None
        return pair

    def _resolve(self, block: Block, ref: Ref) -> Ref:
        """Follow names, remembering which statements were passed."""
        while isinstance(ref.expr, cst.Name) and ref.item is None and ref.when is None:
            found = block.definition(ref.expr.value, ref.at)
            if found is None or found.item is not None:
                return ref
            self._visited.add(found.at)
            ref = found
        return ref

    def _probabilities(self, block: Block, ref: Ref) -> Ref | None:
        """The operand of the softmax behind an expression."""
        while True:
            ref = self._resolve(block, ref)
            if ref.when is not None:
                return None
            inner = spelling.cast(self.source, ref.expr)
            if inner is not None:
                ref = Ref(inner, ref.at)
                continue
            dropped = spelling.dropout(self.source, ref.expr, self.dropouts)
            if dropped is not None:
                if self._dropout:
                    return None
                ref, self._dropout = Ref(dropped[0], ref.at), dropped[1]
                continue
            operand = spelling.softmax(self.source, ref.expr)
            return Ref(operand, ref.at) if operand is not None else None

    # -- the scores

    def _complete(
        self, block: Block, node: cst.BaseExpression, at: int, values: cst.BaseExpression, scores: Ref
    ) -> Attention:
        found = Attention(block, node, at, values, node, at, node, node, False, dropout=self._dropout)
        if not self._scores(block, scores, found):
            raise CannotRewrite("the scores are not a product of queries and keys with a scale and a mask")
        found.visited = self._visited
        found.masks.reverse()
        return found

    def _scores(self, block: Block, ref: Ref, found: Attention) -> bool:
        """Walk from the softmax back to Q K^T, noting what is done to the scores on the way."""
        while True:
            ref = self._resolve(block, ref)
            node, when = ref.expr, ref.when
            if self._take_product(block, ref, found):
                return True
            inner: cst.BaseExpression | None = spelling.cast(self.source, node)
            if inner is None:
                inner = self._scaled(block, ref, found) if when is None else None
            if inner is None:
                inner = self._masked(block, ref, found)
            if inner is None:
                return False
            ref = Ref(inner, ref.at)

    def _take_product(self, block: Block, ref: Ref, found: Attention) -> bool:
        pair = spelling.product(self.source, ref.expr, self.grouped) if ref.when is None else None
        if pair is None:
            equation = spelling.einsum(self.source, ref.expr)
            if equation is None or ref.when is not None or not _contracts(equation[0], transposed=True):
                return False
            found.product, found.product_at = ref.expr, ref.at
            found.queries, found.keys, found.keys_are_transposed = equation[1], equation[2], False
            return True
        found.product, found.product_at, found.queries = ref.expr, ref.at, pair[0]
        keys = spelling.transposed(self.source, pair[1])
        found.keys, found.keys_are_transposed = (keys, False) if keys is not None else (pair[1], True)
        return True

    def _scaled(self, block: Block, ref: Ref, found: Attention) -> cst.BaseExpression | None:
        node = ref.expr
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Multiply, cst.Divide)):
            how = "mul" if isinstance(node.operator, cst.Multiply) else "div"
            sides = [(node.left, node.right)] + ([(node.right, node.left)] if how == "mul" else [])
        else:
            how = "mul" if spelling.method(self.source, node, "mul", "mul_") is not None else "div"
            call = spelling.method(self.source, node, how, f"{how}_")
            other = spelling.argument(call[1], call[2], "other") if call is not None else None
            if call is None or other is None:
                return None
            sides = [(call[0], other)]
        for side, factor in sides:
            if self._is_plain(block, factor, ref.at):
                found.factors.append((how, factor, ref.at))
                return side
        return None

    def _is_plain(self, block: Block, node: cst.BaseExpression, at: int) -> bool:
        return self.analysis.kind(node, self.analysis.facts[block.body[at]].kinds) is Kind.PLAIN

    def _masked(self, block: Block, ref: Ref, found: Attention) -> cst.BaseExpression | None:
        node = ref.expr
        mask: Mask | None = None
        scores: cst.BaseExpression | None = None
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            scores, other = self._which_is_scores(block, node.left, node.right, ref.at)
            mask = Mask("added", Ref(other, ref.at), when=ref.when)
        elif (filled := spelling.masked_fill(self.source, node)) is not None:
            scores, mask = filled[0], Mask("filled", Ref(filled[1], ref.at), filled[2], ref.when)
        elif (chosen := spelling.where(self.source, node)) is not None:
            scores, mask = chosen[1], Mask("kept", Ref(chosen[0], ref.at), chosen[2], ref.when)
        elif (added := spelling.method(self.source, node, "add", "add_")) is not None:
            addend = spelling.argument(added[1], added[2], "other")
            if addend is not None and len(added[1].args) == added[2] + 1:
                scores, mask = added[0], Mask("added", Ref(addend, ref.at), when=ref.when)
        if mask is None or scores is None:
            return None
        if found.factors:
            raise CannotRewrite("the scores are scaled after they were masked")
        found.masks.append(mask)
        return scores

    def _which_is_scores(
        self, block: Block, left: cst.BaseExpression, right: cst.BaseExpression, at: int
    ) -> tuple[cst.BaseExpression | None, cst.BaseExpression]:
        for scores, other in ((left, right), (right, left)):
            trial = Attention(block, left, at, left, left, at, left, left, False)
            visited = set(self._visited)
            try:
                if self._scores(block, Ref(scores, at), trial):
                    return scores, other
            except CannotRewrite:
                pass
            finally:
                self._visited = visited
        return None, right


def _contracts(equation: str, transposed: bool) -> bool:
    """Whether an einsum is the product of two (batch, heads, rows, columns), with the second transposed or not."""
    left, _, out = equation.partition("->")
    a, _, b = left.partition(",")
    if not (len(a) == len(b) == len(out) == 4 and a[:2] == b[:2] == out[:2] and len(set(a + b)) == 5):
        return False
    if transposed:
        return a[3] == b[3] and out[2:] == a[2] + b[2]
    return a[3] == b[2] and out[2:] == a[2] + b[3]


@dataclass(frozen=True)
class Repeat:
    """A statement that repeats heads: `keys = repeat(source)`."""

    at: int
    source: str


def repeat_of(block: Block, node: cst.BaseExpression, before: int, lines: Sequence[int]) -> Repeat | None:
    """The statement that repeats the heads of a name, if it stands on one of the lines where that was seen."""
    if not isinstance(node, cst.Name):
        return None
    ref = block.definition(node.value, before)
    if ref is None or ref.when is not None or ref.item is not None or not isinstance(ref.expr, cst.Call):
        return None
    first, last = block.source.lines(block.body[ref.at])
    if not any(first <= line <= last for line in lines):
        return None
    call = ref.expr
    direct = isinstance(call.func, cst.Name) or block.source.qualified(call.func).startswith("torch.")
    name = dotted(call.args[0].value) if direct and call.args else base_name(call)
    return Repeat(ref.at, name) if name and name != "self" else None
