"""Move code into a function of the module whose results are kept, and write the call that asks for them.

What may be moved, and what the results depend on, the caller has found out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import libcst as cst

from tools.candidate import Site
from tools.rewrite.ops_package import Asset, use
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import FreshNames, Statement, names_in

IsOutside = Callable[[cst.CSTNode], bool]
"""Whether an expression is handed in as an argument."""

_ONE_LINE = 80  # characters of arguments


class Memoiser:
    """What is moved out of one function of a file. Raises: CannotRewrite, as `use` does."""

    def __init__(self, source: SourceFile, function: cst.FunctionDef, site: Site, asset: Asset) -> None:
        self.source, self.function = source, function
        self._names = FreshNames(names_in(source.module))
        self._asset = use(source, asset, site)

    def call(self, builder: str, arguments: Iterable[str]) -> str:
        text = ", ".join([builder, *arguments])
        return f"{self._asset}({text})" if len(text) < _ONE_LINE else f"{self._asset}(\n    {text},\n)"

    def statements(self, body: Sequence[Statement], names: Sequence[str], is_outside: IsOutside, stem: str) -> str:
        """The call that gives what `body` makes of these names."""
        swap = _Swap(self.source, is_outside, set().union(*map(names_in, body)))
        moved = [cast(Statement, s.visit(swap)) for s in body]
        if isinstance(moved[0], (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            comments = [line for line in moved[0].leading_lines if line.comment is not None]
            moved[0] = moved[0].with_changes(leading_lines=comments)
        return self._moved([*moved, *self.source.statements(f"return {', '.join(names)}")], swap.parameters, stem)

    def expression(self, expression: cst.BaseExpression, is_outside: IsOutside, stem: str) -> str:
        """The call that gives the expression's value."""
        swap = _Swap(self.source, is_outside, names_in(expression))
        value = cast(cst.BaseExpression, expression.visit(swap))
        return self._moved([cst.SimpleStatementLine([cst.Return(value)])], swap.parameters, stem)

    def _moved(self, body: Sequence[Statement], parameters: dict[str, str], stem: str) -> str:
        name = self._names("_" + re.sub(r"\W+", "_", stem).strip("_").lower())
        (made,) = self.source.statements(f"def {name}({', '.join(parameters.values())}):\n    pass")
        made = made.with_changes(body=cst.IndentedBlock(body), leading_lines=[cst.EmptyLine(indent=False)] * 2)
        self.source.insert(made, before=self.source.top_level_of(self.function))
        return self.call(name, parameters)


class _Swap(cst.CSTTransformer):
    """Replaces what comes from outside by parameters, which it collects as {source text: parameter}."""

    def __init__(self, source: SourceFile, is_outside: IsOutside, taken: set[str]) -> None:
        super().__init__()
        self.source, self.is_outside, self.names = source, is_outside, FreshNames(taken | {"self"})
        self.parameters: dict[str, str] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        return not self._is_swapped(node)

    def _is_swapped(self, node: cst.CSTNode) -> bool:
        return self.is_outside(node) and (not isinstance(node, cst.Name) or self.source.is_value(node))

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> cst.CSTNodeT:
        if not self._is_swapped(original_node):
            return updated_node
        text = self.source.code(original_node)
        if text not in self.parameters:
            plain = re.sub(r"\W+", "_", text.removeprefix("self.")).strip("_").lower()
            self.names.taken |= {text}
            self.parameters[text] = text if text.isidentifier() else self.names(plain)
        return cast(cst.CSTNodeT, cst.Name(self.parameters[text]))
