"""Follow values through the straight-line statements of one block: where a name got its value, who reads it later.

Does not look through anything that branches, except `if x is not None: name = ...`, which it reports as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from tools.rewrite.reading.escapes import touched
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import Statement, assigned, dotted, find_blocks, simple_statements, statements, walk


@dataclass(frozen=True)
class Ref:
    """An expression as it reads just before statement `at` of the block."""

    expr: cst.BaseExpression
    at: int
    item: int | None = None  # of a tuple that `expr` makes
    when: cst.BaseExpression | None = None  # `x` where the value holds only if x is not None


class Block:
    """The statements around `line`, in the innermost block of the function that holds it."""

    def __init__(self, source: SourceFile, function: cst.FunctionDef, line: int) -> None:
        self.source, self.function = source, function
        self.body: Sequence[Statement] = self._innermost(statements(function), line)

    def _innermost(self, body: Sequence[Statement], line: int) -> Sequence[Statement]:
        for statement in body:
            first, last = self.source.lines(statement)
            if first <= line <= last and not isinstance(statement, cst.SimpleStatementLine):
                for block in find_blocks(statement):
                    low, high = self.source.lines(block)
                    if low <= line <= high:
                        return self._innermost(block.body, line)
        return body

    # -- where a value comes from

    def resolve(self, ref: Ref) -> Ref:
        """Follow names to what they were assigned, as far as that is plain."""
        while isinstance(ref.expr, cst.Name) and ref.item is None and ref.when is None:
            found = self.definition(ref.expr.value, ref.at)
            if found is None or found.item is not None or found.when is not None:
                break
            ref = found
        return ref

    def definition(self, name: str, before: int) -> Ref | None:
        """What a name was last given before a statement of this block; None when that is not plain."""
        for at in range(before - 1, -1, -1):
            statement = self.body[at]
            value = assigned(statement)
            if value is not None and name in value[0]:
                names, expr = value
                if len(names) == 1:
                    return Ref(expr, at)
                if isinstance(expr, (cst.Tuple, cst.List)) and len(expr.elements) == len(names):
                    return Ref(expr.elements[names.index(name)].value, at)
                return Ref(expr, at, item=names.index(name))
            if name in self.source.stores(statement) or name in touched(statement):
                return (
                    self._augmented(statement, name, at)
                    or self._guarded(statement, name, at)
                    or self._in_place(statement, name, at)
                )
        return None

    def _in_place(self, statement: Statement, name: str, at: int) -> Ref | None:
        """`name.masked_fill_(...)` on a line of its own: the call's value is the new value."""
        for small in simple_statements(statement, cst.Expr):
            call = small.value
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and dotted(call.func.value) == name:
                return Ref(call, at)
        return None

    def _augmented(self, statement: Statement, name: str, at: int) -> Ref | None:
        found = simple_statements(statement, cst.AugAssign)
        if not found or not isinstance(found[0].target, cst.Name) or found[0].target.value != name:
            return None
        sign = self.source.code(found[0].operator)
        operators: dict[str, cst.BaseBinaryOp] = {
            "+=": cst.Add(),
            "-=": cst.Subtract(),
            "*=": cst.Multiply(),
            "/=": cst.Divide(),
        }
        if sign not in operators:
            return None
        return Ref(cst.BinaryOperation(cst.Name(name), operators[sign], found[0].value), at)

    def _guarded(self, statement: Statement, name: str, at: int) -> Ref | None:
        """`if x is not None: name = value` without an else."""
        if not isinstance(statement, cst.If) or statement.orelse is not None:
            return None
        test = statement.test
        if not (isinstance(test, cst.Comparison) and len(test.comparisons) == 1 and isinstance(test.left, cst.Name)):
            return None
        comparison = test.comparisons[0]
        if not isinstance(comparison.operator, cst.IsNot) or self.source.code(comparison.comparator) != "None":
            return None
        body = statement.body.body
        value = assigned(body[0]) if len(body) == 1 else None
        if value is not None and value[0] == [name]:
            return Ref(value[1], at, when=test.left)
        inner = body[0] if len(body) == 1 else None
        augmented = self._augmented(inner, name, at) if isinstance(inner, cst.SimpleStatementLine) else None
        return Ref(augmented.expr, at, when=test.left) if augmented else None

    # -- who reads and writes

    def index(self, node: cst.CSTNode) -> int:
        """The statement of the block that holds a node."""
        for at, statement in enumerate(self.body):
            if any(n is node for n in walk(statement)):
                return at
        raise ValueError("the node is not in this block")

    def is_stable(self, names: set[str], start: int, end: int) -> bool:
        """Whether none of the names is bound or changed by the statements from `start` up to but without `end`."""
        return not any(names & (self.source.stores(s) | touched(s)) for s in self.body[start:end])

    def dead(self, candidates: set[int], replaced: dict[int, set[str]]) -> list[int]:
        """Those of the candidate assignments that nobody reads any more.

        `replaced` gives, for statements that are about to change, the names they will still read.
        """
        gone: list[int] = []
        while True:
            new = [i for i in sorted(candidates - set(gone)) if self._is_dead(i, gone, replaced)]
            if not new:
                return sorted(gone)
            gone += new

    def _is_dead(self, at: int, gone: Sequence[int], replaced: dict[int, set[str]]) -> bool:
        names = self.source.stores(self.body[at]) | touched(self.body[at])
        return bool(names) and all(not self._is_read(name, at, gone, replaced) for name in names)

    def _is_read(self, name: str, at: int, gone: Sequence[int], replaced: dict[int, set[str]]) -> bool:
        for later in range(at + 1, len(self.body)):
            if later in gone:
                continue
            loaded = replaced.get(later)
            if name in (self.source.loads(self.body[later]) if loaded is None else loaded):
                return True
            value = assigned(self.body[later])
            if value is not None and name in value[0]:
                return False
        # past the end of an inner block the function goes on, and a loop starts again
        return self.body is not statements(self.function) and self._read_outside(name)

    def _read_outside(self, name: str) -> bool:
        inside = {id(n) for s in self.body for n in walk(s)}
        return any(
            isinstance(n, cst.Name) and n.value == name and id(n) not in inside for n in walk(self.function.body)
        )
