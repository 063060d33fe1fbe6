"""Follow values through the straight-line statements of one block: where a name got its value, who reads it later.

Does not look through anything that branches, except `if x is not None: name = ...`, which it reports as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import libcst as cst

from tools.rewrite.reading.memory import touched
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import Statement, assigned, dotted, find_blocks, holds, simple_statements, statements

_OPERATORS: dict[type[cst.BaseAugOp], cst.BaseBinaryOp] = {
    cst.AddAssign: cst.Add(),
    cst.SubtractAssign: cst.Subtract(),
    cst.MultiplyAssign: cst.Multiply(),
    cst.DivideAssign: cst.Divide(),
}


@dataclass(frozen=True)
class Ref:
    """An expression as it reads just before statement `at` of the block."""

    expr: cst.BaseExpression
    at: int
    item: int | None = None  # of a tuple that `expr` makes
    when: cst.BaseExpression | None = None  # `x` where the value holds only if x is not None


class Block:
    """The statements around some lines, in the innermost block of the function that holds all of them.

    `levels` are the blocks from the function's own to this one, `around` the statements that they belong to.
    """

    def __init__(self, source: SourceFile, function: cst.FunctionDef, *lines: int) -> None:
        self.source, self.function = source, function
        self.body: Sequence[Statement] = statements(function)
        self.levels, self.around = [self.body], list[Statement]()
        while inner := [
            (statement, block.body)
            for statement in self.body
            for block in find_blocks(statement)
            if all(source.spans(block, line) for line in lines)
        ]:
            statement, self.body = inner[0]
            self.around.append(statement)
            self.levels.append(self.body)

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
            if name in self.changed(statement):
                return self._guarded(statement, name, at) or _updated(statement, name, at)
        return None

    def assigned_to(self, name: cst.BaseExpression, before: int) -> Ref | None:
        """The definition of a name that is an assignment to it alone; None for anything else."""
        found = self.definition(name.value, before) if isinstance(name, cst.Name) else None
        if found is None or found.item is not None:
            return None
        value = assigned(self.body[found.at])
        return found if value is not None and value[1] is found.expr else None

    def _guarded(self, statement: Statement, name: str, at: int) -> Ref | None:
        """`if x is not None: name = value` without an else."""
        match statement:
            case cst.If(
                test=cst.Comparison(
                    left=cst.Name() as when,
                    comparisons=[cst.ComparisonTarget(operator=cst.IsNot(), comparator=cst.Name(value="None"))],
                ),
                body=cst.BaseSuite(body=[inner]),
                orelse=None,
            ):
                value = assigned(inner)
                found = Ref(value[1], at) if value is not None and value[0] == [name] else _augmented(inner, name, at)
                return replace(found, when=when) if found is not None else None
        return None

    # -- who reads and writes

    def changed(self, statement: cst.CSTNode) -> set[str]:
        """Names that a statement binds, or whose tensors it changes in place."""
        return self.source.stores(statement) | touched(statement)

    def index(self, node: cst.CSTNode) -> int:
        """The statement of the block that holds a node."""
        return next(at for at, statement in enumerate(self.body) if holds(statement, node))

    def is_stable(self, names: set[str], start: int, end: int) -> bool:
        """Whether none of the names is bound or changed by the statements from `start` up to but without `end`."""
        return not any(names & self.changed(s) for s in self.body[start:end])

    def dead(self, candidates: set[int], replaced: dict[int, set[str]]) -> list[int]:
        """Those of the candidate assignments that nobody reads any more.

        `replaced` gives, for statements that are about to change, the names they will still read.
        """
        gone: list[int] = []
        while new := [i for i in sorted(candidates - set(gone)) if self._is_dead(i, gone, replaced)]:
            gone += new
        return sorted(gone)

    def _is_dead(self, at: int, gone: Sequence[int], replaced: dict[int, set[str]]) -> bool:
        names = self.changed(self.body[at])
        return bool(names) and not any(self._is_read(name, at, gone, replaced) for name in names)

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
        return self.body is not statements(self.function) and name in self.source.used_outside(self.function, self.body)


def _updated(statement: Statement, name: str, at: int) -> Ref | None:
    """`name += value`, or `name.masked_fill_(...)` on a line by itself: the call's value is the new value."""
    for small in simple_statements(statement, cst.Expr):
        call = small.value
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and dotted(call.func.value) == name:
            return Ref(call, at)
    return _augmented(statement, name, at)


def _augmented(statement: cst.CSTNode, name: str, at: int) -> Ref | None:
    for small in simple_statements(statement, cst.AugAssign)[:1]:
        operator = _OPERATORS.get(type(small.operator))
        if operator is not None and dotted(small.target) == name:
            return Ref(cst.BinaryOperation(cst.Name(name), operator, small.value), at)
    return None
