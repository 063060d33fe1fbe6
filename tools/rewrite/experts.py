"""Run a mixture of experts without a loop over its experts: rows are sorted by expert once.

It recognises the loop by what it does with the choice of experts, whatever its names are. Where the loop calls experts
without rows too, the call says so: their weights get gradients of zeros then. A loop in which anything else happens
stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import GROUPED_EXPERTS, use
from tools.rewrite.reading.expert_values import Part, Values
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import find_all, methods, simple_statements
from tools.rewrite.sites import largest_first, of_class


@dataclass(frozen=True)
class Mixture:
    """What the loop adds to `into`: the code of its operands."""

    experts: str
    tokens: str
    chosen: str
    weights: str
    into: str
    all_called: bool  # experts without rows too


def find(tree: Path, observation: Observation) -> list[Site]:
    """Loops over experts in the classes that ran."""
    found = []
    for row in observation.classes:
        if row.third_party or not row.calls or "ModuleList" not in row.children.values():
            continue
        with contextlib.suppress(CannotRewrite):
            source = SourceFile(tree, row.file)
            for loop, _ in _loops(source, source.class_named(row.name, row.line)):
                first, last = source.lines(loop)
                site = of_class("experts", row, row.inclusive_share, paths=row.paths)
                found.append(site.model_copy(update={"line": first, "line_end": last}))
    return largest_first(found)


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    for loop, mixture in _loops(source, source.class_named(site.module_class, site.line)):
        if source.lines(loop)[0] == site.line:
            ours = use(source, GROUPED_EXPERTS, site)
            given = [mixture.experts, mixture.tokens, mixture.chosen, mixture.weights]
            operands = ", ".join([*given, "all_called=True"] if mixture.all_called else given)
            source.replace_statement(loop, f"{mixture.into} += {ours}({operands})")
            return source.changes()
    raise CannotRewrite(f"no loop over experts is at {site.file}:{site.line}")


def _loops(source: SourceFile, owner: cst.ClassDef) -> Iterator[tuple[cst.For, Mixture]]:
    for function in methods(owner):
        for loop in find_all(function, cst.For):
            reader = _Reader(source, Values(source, function, loop))
            with contextlib.suppress(CannotRewrite):
                yield loop, reader.mixture(function, loop)


@dataclass
class _Reader:
    """Reads one loop, statement by statement. Raises: CannotRewrite for the first that is something else."""

    source: SourceFile
    values: Values
    added: list[tuple[str, Part]] = field(default_factory=list)
    has_rows: bool = False  # whether what is read now happens only for experts with rows
    all_called: bool = False

    def mixture(self, function: cst.FunctionDef, loop: cst.For) -> Mixture:
        if loop.orelse is not None or loop.asynchronous is not None or not isinstance(loop.body, cst.IndentedBlock):
            raise CannotRewrite("not a plain loop")
        self._block(loop.body.body)
        if len(self.added) != 1:
            raise CannotRewrite("it adds nothing, or to several places")
        last = self.source.lines(loop)[1]
        used_later = {n.value for n in find_all(function, cst.Name) if self.source.lines(n)[0] > last}
        if used_later & self.values.bound:
            raise CannotRewrite("what it computes is used after it")
        into, made = self.added[0]
        return Mixture(self.values.experts, made.tokens, made.chosen, made.weights, into, self.all_called)

    def _block(self, body: Sequence[cst.BaseStatement]) -> None:
        for statement in body:
            if isinstance(statement, cst.If):
                self._condition(statement)
            elif isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
                self._line(statement)
            else:
                raise CannotRewrite("a statement that is not understood")

    def _condition(self, statement: cst.If) -> None:
        """`if no rows: continue`, or `if some rows: …`."""
        some = self.values.says_some(statement.test)
        body = statement.body.body
        if some is None or statement.orelse is not None or not isinstance(statement.body, cst.IndentedBlock):
            raise CannotRewrite("a condition that is not about the number of rows")
        if self.all_called:
            raise CannotRewrite("experts without rows are called for nothing")
        if some:
            before, self.has_rows = self.has_rows, True
            self._block(statement.body.body)
            self.has_rows = before
        elif len(body) == 1 and simple_statements(body[0], cst.Continue):
            self.has_rows = True
        else:
            raise CannotRewrite("something is done for an expert without rows")

    def _line(self, statement: cst.SimpleStatementLine) -> None:
        line = statement.body[0]
        if isinstance(line, cst.Assign) and len(line.targets) == 1:
            self.values.bind(line.targets[0].target, line.value)
        elif isinstance(line, cst.AugAssign) and isinstance(line.operator, cst.AddAssign):
            into = self.values.rows_of(line.target)
            self._add(into, line.value)
        elif isinstance(line, cst.Expr):
            into, value = self.values.index_add(line.value)
            self._add(into, value)
        else:
            raise CannotRewrite("a statement that is not understood")
        self.all_called |= not self.has_rows and self.values.calls_expert(line)

    def _add(self, into: str, value: cst.BaseExpression) -> None:
        made = self.values.of(value)
        if made.kind != "weighted" or not into:
            raise CannotRewrite("what is added is no weighted result of an expert")
        self.added.append((into, made))
