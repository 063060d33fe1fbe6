"""One Python file of the target, parsed: find classes and functions by line, ask about names, apply edits.

Refuses files that do not parse. Edits are collected and applied at once; nothing is written here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import CodeRange, ExpressionContext, ExpressionContextProvider, MetadataWrapper, PositionProvider

from tools.rewrite import CannotRewrite
from tools.rewrite.reading.syntax import (
    Statement,
    dotted,
    find_all,
    holds,
    import_table,
    imported_names,
    methods,
    simple_statements,
    walk,
)

_Node = TypeVar("_Node", bound=cst.CSTNode)


@dataclass(frozen=True)
class _Parsed:
    module: cst.Module
    positions: Mapping[cst.CSTNode, CodeRange]
    read: set[cst.CSTNode]
    """Names that are read. An augmented assignment reads its target; the keyword of an argument is not read."""
    bound: set[cst.CSTNode]
    """Names that are bound or deleted."""
    bindings: Counter[str]
    """How often each top-level name is bound."""


@lru_cache(maxsize=16)
def _parse(data: bytes) -> _Parsed:
    wrapper = MetadataWrapper(cst.parse_module(data))
    module, contexts = wrapper.module, wrapper.resolve(ExpressionContextProvider)
    read = {n for n, context in contexts.items() if context is ExpressionContext.LOAD}
    read |= {a.target for a in find_all(module, cst.AugAssign)}
    read -= {a.keyword for a in find_all(module, cst.Arg) if a.keyword is not None}
    bound = {n for n, context in contexts.items() if context in (ExpressionContext.STORE, ExpressionContext.DEL)}
    bindings = Counter(n.name.value for g in find_all(module, cst.Global) for n in g.names)
    for statement in module.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            bindings[statement.name.value] += 1
        else:
            bindings.update(_names(statement, bound) | imported_names(statement))
    return _Parsed(module, wrapper.resolve(PositionProvider), read, bound, bindings)


def _names(node: cst.CSTNode, wanted: set[cst.CSTNode]) -> set[str]:
    return {n.value for n in find_all(node, cst.Name) if n in wanted}


@dataclass
class _Edits:
    """Nodes to put instead of one, before it and after it."""

    instead: dict[cst.CSTNode, Sequence[cst.CSTNode]] = field(default_factory=dict)
    before: dict[cst.CSTNode, list[cst.CSTNode]] = field(default_factory=dict)
    after: dict[cst.CSTNode, list[cst.CSTNode]] = field(default_factory=dict)


_shared: ContextVar[dict[tuple[Path, str], _Edits] | None] = ContextVar("_shared", default=None)


@contextmanager
def one_edit() -> Iterator[None]:
    """Within it a file that is opened again still has its edits, so that several rewrites make one change."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


@dataclass
class SourceFile:
    """A parsed file. `path` is relative to the tree. Raises: CannotRewrite when it leads out, or does not parse."""

    tree: Path
    path: str
    module: cst.Module = field(init=False)

    def __post_init__(self) -> None:
        place = (self.tree / self.path).resolve()
        if not place.is_relative_to(self.tree.resolve()):  # the path was told by the target's process
            raise CannotRewrite(f"{self.path} is not in the target")
        try:
            self._parsed = _parse(place.read_bytes())
        except (OSError, UnicodeDecodeError, cst.ParserSyntaxError) as error:
            raise CannotRewrite(f"{self.path} cannot be parsed: {str(error).splitlines()[0]}") from error
        self.module = self._parsed.module
        self.imports = import_table(self.module)
        self.files: dict[str, str] = {}
        """What has to come into the tree with the edits: path -> text."""
        known = _shared.get()
        self._edits = _Edits() if known is None else known.setdefault((self.tree, self.path), _Edits())

    # -- where things are

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line, counted from 1."""
        where = self._parsed.positions[node]
        return where.start.line, where.end.line

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node).strip()

    def function_at(self, line: int) -> cst.FunctionDef:
        """The innermost function around a line. Raises: CannotRewrite."""
        found = [f for f in find_all(self.module, cst.FunctionDef) if self._around(f, line)]
        if not found:
            raise CannotRewrite(f"no function is at {self.path}:{line}")
        return max(found, key=lambda f: self.lines(f)[0])

    def class_named(self, name: str, line: int) -> cst.ClassDef:
        """A class by its qualified name, the one nearest to a line if there are several. Raises: CannotRewrite."""
        found = [c for c in find_all(self.module, cst.ClassDef) if c.name.value == name.rpartition(".")[2]]
        if not found:
            raise CannotRewrite(f"no class {name} is in {self.path}")
        return min(found, key=lambda c: abs(self.lines(c)[0] - line))

    def _around(self, node: cst.FunctionDef | cst.ClassDef, line: int) -> bool:
        first, last = self.lines(node)
        return min([first, *(self.lines(d)[0] for d in node.decorators)]) <= line <= last

    def method(self, owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
        found = [f for f in methods(owner) if f.name.value == name]
        return found[-1] if found else None

    def function(self, name: str) -> cst.FunctionDef | None:
        """A function of the module's top level that is defined exactly once and never rebound."""
        found = [n for n in self.module.body if isinstance(n, cst.FunctionDef) and n.name.value == name]
        return found[0] if len(found) == 1 and self._parsed.bindings[name] == 1 else None

    def top_level_of(self, function: cst.FunctionDef) -> cst.BaseStatement | cst.SimpleStatementLine:
        """The statement of the module that holds a function of it."""
        return next(statement for statement in self.module.body if holds(statement, function))

    def top_level_value(self, name: str) -> cst.BaseExpression | None:
        """The expression a top-level name is bound to, if it is bound once."""
        if self._parsed.bindings[name] != 1:
            return None
        for statement in self.module.body:
            for assign in simple_statements(statement, cst.Assign):
                if [t.target.value for t in assign.targets if isinstance(t.target, cst.Name)] == [name]:
                    return assign.value
        return None

    def called_function(self, name: str) -> tuple[SourceFile, cst.FunctionDef] | None:
        """The function that a name stands for, of this file or of another one of the target, and its file."""
        own = self.function(name)
        return (self, own) if own is not None else self._imported_function(name)

    def _imported_function(self, name: str) -> tuple[SourceFile, cst.FunctionDef] | None:
        """The function a `from module import name` brings in, when that module is a file of the target."""
        origin, _, symbol = self.imports.get(name, "").rpartition(".")
        module, folder = origin.lstrip("."), PurePosixPath(self.path).parent
        level = len(origin) - len(module)
        roots = [folder, *folder.parents][level - 1 : level] if level else [folder, PurePosixPath()]
        for place in [root.joinpath(*module.split(".")) for root in roots if module]:
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if (self.tree / path).is_file():
                    other = SourceFile(self.tree, str(path))
                    function = other.function(symbol)
                    return (other, function) if function is not None else None
        return None

    def qualified(self, node: cst.CSTNode) -> str:
        """`torch.nn.functional.softmax` for `F.softmax`, by this file's imports; empty when it is no imported name."""
        head, _, rest = dotted(node).partition(".")
        origin = self.imports.get(head, "")
        return f"{origin}.{rest}" if origin and rest else origin

    def spans(self, node: cst.CSTNode, line: int) -> bool:
        first, last = self.lines(node)
        return first <= line <= last

    def at(self, line: int, within: cst.CSTNode, kind: type[_Node]) -> list[_Node]:
        """The nodes of a kind that span a line, in source order."""
        return [node for node in find_all(within, kind) if self.spans(node, line)]

    def plain_call(self, within: cst.CSTNode, name: str, line: int) -> cst.Call:
        """The call of `name` with one positional argument on a line. Raises: CannotRewrite."""
        for call in self.at(line, within, cst.Call):
            if dotted(call.func) == name and len(call.args) == 1 and not (call.args[0].keyword or call.args[0].star):
                return call
        raise CannotRewrite(f"{name} is not called with one tensor at {self.path}:{line}")

    # -- new nodes, in the style of this file

    def expression(self, text: str) -> cst.BaseExpression:
        return cst.parse_expression(text, self.module.config_for_parsing)

    def statements(self, *texts: str) -> list[Statement]:
        return [line for text in texts for line in cst.parse_module(f"{text}\n", self.module.config_for_parsing).body]

    # -- names

    def loads(self, node: cst.CSTNode) -> set[str]:
        """Names read anywhere below, nested functions included."""
        return _names(node, self._parsed.read)

    def stores(self, node: cst.CSTNode) -> set[str]:
        """Names bound or deleted anywhere below."""
        return _names(node, self._parsed.bound)

    def is_value(self, name: cst.Name) -> bool:
        """Whether an identifier is a variable, which attributes and the keywords of a call are not."""
        return name in self._parsed.read or name in self._parsed.bound

    def used_outside(self, function: cst.FunctionDef, body: Sequence[Statement]) -> set[str]:
        """Names that a function reads or binds in other statements than these."""
        inside = {id(node) for statement in body for node in walk(statement)}
        return {n.value for n in find_all(function.body, cst.Name) if self.is_value(n) and id(n) not in inside}

    # -- edits

    def replace(self, node: cst.CSTNode, *new: cst.CSTNode) -> None:
        """Put other nodes in its place; none removes it."""
        self._edits.instead[node] = new

    def replace_statement(self, old: Statement, *texts: str) -> None:
        """Put these statements in its place, below what stands above it."""
        first, *rest = self.statements(*texts)
        self.replace(old, first.with_changes(leading_lines=getattr(old, "leading_lines", ())), *rest)

    def insert(self, new: cst.CSTNode, *, before: cst.CSTNode | None = None, after: cst.CSTNode | None = None) -> None:
        """Put a statement before or after another; several at one place keep the order in which they came."""
        place, there = (after, self._edits.after) if before is None else (before, self._edits.before)
        is_import = bool(simple_statements(new, cst.ImportFrom))  # each once, whoever else needs it
        if place is not None and not (is_import and any(new.deep_equals(each) for each in there.get(place, ()))):
            there.setdefault(place, []).append(new)

    def edited(self, node: _Node) -> _Node:
        """The node with the edits collected so far applied below it."""
        return cast(_Node, node.visit(_Apply(self._edits)))

    def changes(self) -> dict[str, str]:
        """New file contents: of this file, and of those that it needs."""
        return {**self.files, self.path: self.edited(self.module).code}


class _Apply(cst.CSTTransformer):
    def __init__(self, edits: _Edits) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        new = [*self._edits.instead.get(original_node, (updated_node,))]
        before = self._edits.before.get(original_node, [])
        if before and new:
            new[0], before = _move_leading_lines(new[0], before)
        new = [*before, *new, *self._edits.after.get(original_node, [])]
        if not new:
            return cst.RemoveFromParent()
        if len(new) == 1:
            return cast(cst.CSTNodeT, new[0])
        return cst.FlattenSentinel(cast(Sequence[cst.CSTNodeT], new))


def _move_leading_lines(node: cst.CSTNode, before: list[cst.CSTNode]) -> tuple[cst.CSTNode, list[cst.CSTNode]]:
    """What stands above a statement stays above what is put before it, blank lines at least."""
    lines: list[cst.EmptyLine] = list(getattr(node, "leading_lines", ()))
    blank = [line for line in lines if line.comment is None]
    if not blank or not isinstance(before[0], (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
        return node, before
    rest = [line for line in lines if line.comment is not None]
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        rest = lines
    return node.with_changes(leading_lines=rest), [before[0].with_changes(leading_lines=blank), *before[1:]]
