"""Move statements or an expression into a new top-level function whose parameters are the plain values they need.

Refuses nothing by itself: what may be moved is decided by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import libcst as cst

from tools.rewrite.reading.flow import Statement
from tools.rewrite.reading.kinds import Env, Kinds
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import find_all, free_name


@dataclass(frozen=True)
class Lifted:
    name: str
    function: cst.FunctionDef
    arguments: list[str]  # what the call hands in, as source text


def lift(
    source: SourceFile,
    body: Sequence[Statement],
    names: Sequence[str],
    env: Env,
    kinds: Kinds,
    name: str,
    taken: set[str],
) -> Lifted:
    """A function that runs `body` and returns `names`."""
    local = set().union(*(source.stores(s) for s in body))
    outside = {n: k for n, k in env.items() if n not in local}
    swap = _Swap(source, outside, kinds, {n.value for s in body for n in find_all(s, cst.Name)})
    moved = [swap.apply(s) for s in body]
    if isinstance(moved[0], cst.SimpleStatementLine):
        comments = [line for line in moved[0].leading_lines if line.comment is not None]
        moved[0] = moved[0].with_changes(leading_lines=comments)
    returned = cst.parse_statement(f"return {', '.join(names)}", source.module.config_for_parsing)
    return _make(source, name, swap, [*moved, returned], taken)


def lift_expression(
    source: SourceFile, expression: cst.BaseExpression, env: Env, kinds: Kinds, name: str, taken: set[str]
) -> Lifted:
    """A function that returns the expression's value."""
    swap = _Swap(source, env, kinds, {n.value for n in find_all(expression, cst.Name)})
    value = expression.visit(swap)
    assert isinstance(value, cst.BaseExpression)
    return _make(source, name, swap, [cst.SimpleStatementLine([cst.Return(value)])], taken)


def _make(
    source: SourceFile,
    name: str,
    swap: _Swap,
    body: Sequence[cst.BaseStatement | cst.SimpleStatementLine],
    taken: set[str],
) -> Lifted:
    name = free_name(name, taken)
    text = f"def {name}({', '.join(swap.parameters.values())}):\n    pass\n"
    function = cst.parse_statement(text, source.module.config_for_parsing)
    assert isinstance(function, cst.FunctionDef)
    function = function.with_changes(body=cst.IndentedBlock(body), leading_lines=[cst.EmptyLine(indent=False)] * 2)
    return Lifted(name, function, list(swap.parameters))


class _Swap(cst.CSTTransformer):
    """Replaces what comes from outside by parameters, which it collects as {source text: parameter}."""

    def __init__(self, source: SourceFile, env: Env, kinds: Kinds, taken: set[str]) -> None:
        super().__init__()
        self.source, self.env, self.kinds = source, env, kinds
        self.taken = taken | {"self"}
        self.parameters: dict[str, str] = {}
        self._labels: set[int] = set()  # keywords and attribute names: identifiers, but no variables

    def apply(self, statement: Statement) -> Statement:
        moved = statement.visit(self)
        assert isinstance(moved, (cst.SimpleStatementLine, cst.BaseStatement))
        return moved

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Arg) and node.keyword is not None:
            self._labels.add(id(node.keyword))
        elif isinstance(node, cst.Attribute):
            self._labels.add(id(node.attr))
        return not self._is_swapped(node)

    def _is_swapped(self, node: cst.CSTNode) -> bool:
        return id(node) not in self._labels and self.kinds.is_leaf(node, self.env)

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> cst.CSTNodeT:
        if not self._is_swapped(original_node):
            return updated_node
        text = self.source.code(original_node)
        if text not in self.parameters:
            plain = text if text.isidentifier() else free_name(_identifier(text), self.taken)
            self.parameters[text] = plain
            self.taken.add(plain)
        return cast(cst.CSTNodeT, cst.Name(self.parameters[text]))


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text.removeprefix("self.")).strip("_").lower()
