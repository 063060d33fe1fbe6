"""Find out once what shapes and settings alone decide, where Python waits for the device to hear it in every call.

The statements from where the tensors are made to where the answer is used move, as they are, into a function of the
module, and `from_shapes` keeps what it gives. That the answer depends on no data was observed; `from_shapes` sees it
again in every program that runs, and else calls the function each time. It refuses statements that do more than give
names values, and calls that it does not know, but for the one in which Python waits.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import libcst as cst

from tools.candidate import Site
from tools.observation import Frame, HostRead, Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import FROM_SHAPES, use
from tools.rewrite.reading.escapes import escaping, touched
from tools.rewrite.reading.flow import Statement
from tools.rewrite.reading.pure_operations import FACTORIES, PLAIN_FUNCTIONS, PURE
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import (
    assigned,
    base_name,
    find_all,
    find_blocks,
    free_name,
    imported_names,
    parameters,
    statements,
    walk,
)

_QUESTIONS = PLAIN_FUNCTIONS | {"getattr", "isinstance"}
_OPERATIONS = FACTORIES | PURE
_ONE_LINE = 60  # characters of arguments
_SAID = (cst.SimpleStatementLine, cst.If)


def find(observation: Observation) -> list[Site]:
    """Functions in which tensors are made that depend on no data, and below which Python waits for a value of them.

    For each such place all of them, the outermost first: the others may lack what the outermost one makes.
    """
    found: dict[tuple[str, int, int], Site] = {}
    for row in observation.host_reads:
        for frame in reversed(row.frames if row.fixed else []):
            made = sorted({made.line for made, _ in _made_in(observation, frame)})
            if made and not frame.third_party:
                share = sum(share for _, share in _made_in(observation, frame)) + _share_below(observation, frame)
                found.setdefault((frame.file, frame.first_line, frame.line), _site(row, frame, made, share))
    return list(found.values())


def _site(row: HostRead, frame: Frame, made: list[int], share: float) -> Site:
    return Site(
        kind="decision",
        file=frame.file,
        line=frame.line,
        line_end=frame.line,
        module_class=frame.owner,
        third_party=frame.third_party,
        share=share,
        detail={
            "module": frame.module,
            "function": frame.function,
            "made": made,
            "count": row.count,
            "plain_attributes": frame.plain_attributes,
        },
    )


def _made_in(observation: Observation, frame: Frame) -> Iterator[tuple[Frame, float]]:
    """Where this function itself makes such tensors, before it waits."""
    for row in observation.constants:
        first = row.frames[0]
        here = (first.file, first.first_line) == (frame.file, frame.first_line) and first.line < frame.line
        if here and not row.mutated:
            yield first, row.share


def _share_below(observation: Observation, frame: Frame) -> float:
    here = (frame.file, frame.first_line, frame.line)
    rows = observation.constants
    return sum(row.share for row in rows if here in [(f.file, f.first_line, f.line) for f in row.frames])


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.line)
    moved = _moved(source, function, site)
    taken = {n.value for n in find_all(source.module, cst.Name)}
    used = use(source, FROM_SHAPES, site.detail["module"])
    made = moved.function(_name(site, function, moved.outputs, taken))
    source.insert(made, before=source.top_level_of(function))
    given = ", ".join([made.name.value, *moved.arguments])
    given = given if len(given) < _ONE_LINE else f"\n    {given},\n"
    text = f"{', '.join(moved.outputs)} = {used.name}({given})"
    line = cst.ensure_type(cst.parse_statement(text, source.module.config_for_parsing), cst.SimpleStatementLine)
    first, *others = moved.body
    source.replace(first, line.with_changes(leading_lines=_lines_above(first)))
    for other in others:
        source.replace(other)
    return {**used.files, source.path: source.result()}


def outputs(tree: Path, site: Site) -> list[str]:
    """The names that are found out once. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    return _moved(source, source.function_at(site.line), site).outputs


def _name(site: Site, function: cst.FunctionDef, names: Sequence[str], taken: set[str]) -> str:
    stem = re.sub(r"\W+", "_", f"{site.module_class}_{function.name.value}_{names[0]}").strip("_").lower()
    return free_name(f"_{stem}", taken)


@dataclass
class _Moved:
    """Statements that stand one after the other, what they are given, and what of theirs is read later."""

    source: SourceFile
    body: Sequence[Statement]
    names: list[str]  # of locals that they read and that were there before
    attributes: list[str]  # of self
    outputs: list[str]

    @property
    def arguments(self) -> list[str]:
        return [*(f"self.{name}" for name in self.attributes), *self.names]

    def function(self, name: str) -> cst.FunctionDef:
        config = self.source.module.config_for_parsing
        taken = {name for s in self.body for name in _reads(self.source, s) | self.source.stores(s)}
        own = {attribute: free_name(attribute, taken) for attribute in self.attributes}
        head = cst.parse_statement(f"def {name}({', '.join([*own.values(), *self.names])}):\n    pass\n", config)
        inside = [cast(Statement, s.visit(_WithoutSelf(own))) for s in self.body]
        inside[0] = inside[0].with_changes(leading_lines=[])
        returned = cst.parse_statement(f"return {', '.join(self.outputs)}", config)
        return cst.ensure_type(head, cst.FunctionDef).with_changes(
            body=cst.IndentedBlock([*inside, returned]), leading_lines=[cst.EmptyLine(indent=False)] * 2
        )


def _lines_above(statement: Statement) -> Sequence[cst.EmptyLine]:
    return statement.leading_lines if isinstance(statement, (cst.SimpleStatementLine, cst.If)) else ()


class _WithoutSelf(cst.CSTTransformer):
    def __init__(self, own: dict[str, str]) -> None:
        super().__init__()
        self.own = own

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        name = _of_self(original_node)
        return cst.Name(self.own[name]) if name else updated_node


def _of_self(node: cst.CSTNode) -> str:
    """`config` of `self.config`."""
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self":
        return node.attr.value
    return ""


def _moved(source: SourceFile, function: cst.FunctionDef, site: Site) -> _Moved:
    """From the first line that makes such a tensor, or else from a later one. Raises: CannotRewrite."""
    made = [line for line in site.detail["made"] if source.function_at(line) is function]
    first: CannotRewrite | None = None
    while made:
        try:
            return _moved_from(source, function, site, made.pop(0))
        except CannotRewrite as reason:
            first = first or reason
    raise first or CannotRewrite(f"{function.name.value} makes nothing there")


def _moved_from(source: SourceFile, function: cst.FunctionDef, site: Site, begin: int) -> _Moved:
    block = _block_around(source, statements(function), [begin, site.line])
    inside = [at for at, s in enumerate(block) if any(_spans(source, s, line) for line in (begin, site.line))]
    body = block[inside[0] : inside[-1] + 1]
    local = source.stores(function.body) | {p.name.value for p in parameters(function)}
    many = {p.name.value for p in (function.params.star_arg, function.params.star_kwarg) if isinstance(p, cst.Param)}
    plain = {name.partition(".")[0] for name in site.detail["plain_attributes"]}
    for statement in body:
        _check(source, statement, plain)
    _check_calls(source, body, site.line, local)
    stored = set().union(*(source.stores(s) for s in body))
    read = {name for s in body for name in _reads(source, s) if name in local} - {"self"}
    before = {name for name in read if _is_read_first(source, body, name)}
    wanted = sorted(stored & _read_outside(source, function, body))
    sure = {name for name in wanted if _is_read_first(source, body, name) is False}
    before |= set(wanted) - sure  # those may be what they were
    unknown = before - {p.name.value for p in parameters(function)} - _stored_above(source, function, body[0])
    if others := _globals(source, body) - local:
        raise CannotRewrite(f"{min(others)} may be changed, or may not be there")
    if unknown or before & many:
        raise CannotRewrite(f"{min(unknown or before & many)} may not be there, or hold anything")
    if not wanted:
        raise CannotRewrite(f"what {function.name.value} decides there is not given to a name")
    if shared := set(wanted) & escaping(function.body, {id(node) for s in body for node in walk(s)}):
        raise CannotRewrite(f"{min(shared)} may be changed in place later")
    attributes = sorted({name for s in body for node in walk(s) if (name := _of_self(node))})
    if perhaps := set(attributes) - {name for s in body for node in _surely(s) if (name := _of_self(node))}:
        raise CannotRewrite(f"self.{min(perhaps)} may not be there")
    return _Moved(source, body, sorted(before), attributes, wanted)


def _block_around(source: SourceFile, body: Sequence[Statement], lines: Sequence[int]) -> Sequence[Statement]:
    """The innermost block that holds all these lines. Raises: CannotRewrite within a loop or a try."""
    for statement in body:
        for block in find_blocks(statement):
            first, last = source.lines(block)
            if all(first <= line <= last for line in lines):
                if isinstance(statement, (cst.For, cst.While)):
                    raise CannotRewrite("that is decided in each step of a loop")
                if isinstance(statement, (cst.Try, cst.TryStar)):
                    raise CannotRewrite("an error in the middle of it would be handled")
                return _block_around(source, block.body, lines)
    return body


def _spans(source: SourceFile, node: cst.CSTNode, line: int) -> bool:
    first, last = source.lines(node)
    return first <= line <= last


def _check(source: SourceFile, statement: Statement, plain: set[str]) -> None:
    """Raises: CannotRewrite for what does more than give names values, or might."""
    for part in _statements_in(statement):
        if isinstance(part, cst.SimpleStatementLine) and assigned(part) is None:
            raise CannotRewrite(f"line {source.lines(part)[0]} does more than give a name its value")
    if touched(statement):
        raise CannotRewrite(f"{min(touched(statement))} is changed in place")
    known = {id(node.value) for node in walk(statement) if _of_self(node) in plain and isinstance(node, cst.Attribute)}
    for node in walk(statement):
        if isinstance(node, (cst.Lambda, cst.NamedExpr, cst.Await, cst.Yield, cst.CompFor)):
            raise CannotRewrite(f"line {source.lines(statement)[0]} is not understood")
        if isinstance(node, cst.Name) and node.value == "self" and id(node) not in known:
            raise CannotRewrite("it depends on more of self than plain attributes")


def _statements_in(statement: Statement) -> Iterator[cst.CSTNode]:
    """All of them, of kinds that only choose between others. Raises: CannotRewrite."""
    if not isinstance(statement, _SAID) or find_all(statement, cst.SimpleStatementSuite):
        raise CannotRewrite("what decides it stands in a statement that is not understood")
    yield statement
    for block in find_blocks(statement):
        for inner in block.body:
            yield from _statements_in(inner)


def _check_calls(source: SourceFile, body: Sequence[Statement], line: int, local: set[str]) -> None:
    """One may be unknown, the one in which Python waits. Raises: CannotRewrite for another, or a method of self."""
    calls = [call for statement in body for call in find_all(statement, cst.Call)]
    unknown = [call for call in calls if not _is_known(source, call, local)]
    for call in unknown:
        if len(unknown) > 1 or not _spans(source, call, line) or _of_self(call.func):
            raise CannotRewrite(f"{source.code(call.func)} may do more than compute")


def _is_known(source: SourceFile, call: cst.Call, local: set[str]) -> bool:
    """Operations of torch, methods of locals (`from_shapes` knows what these may be), and questions about numbers."""
    if isinstance(call.func, cst.Name):
        return call.func.value in _QUESTIONS - local
    if not isinstance(call.func, cst.Attribute):
        return False
    base = base_name(call.func.value)
    of_torch = not base or source.imports.get(base, "").partition(".")[0] == "torch"
    return base in local - {"self"} or (of_torch and call.func.attr.value in _OPERATIONS)


def _is_read_first(source: SourceFile, body: Sequence[Statement], name: str) -> bool | None:
    """Whether these read what a name was before; False where they surely give it a value first; None for neither."""
    for statement in body:
        if isinstance(statement, cst.If):
            found = _is_read_first_in(source, statement, name)
        else:
            value = assigned(statement)
            made = False if value is not None and name in value[0] else None
            found = True if name in _reads(source, statement) else made
        if found is not None:
            return found
    return None


def _is_read_first_in(source: SourceFile, statement: cst.If, name: str) -> bool | None:
    if name in _reads(source, statement.test):
        return True
    other = statement.orelse
    rest: Sequence[Statement] = [other] if isinstance(other, cst.If) else _inside(other) if other is not None else []
    branches = [_is_read_first(source, branch, name) for branch in (_inside(statement), rest)]
    return True if True in branches else False if branches == [False, False] else None


def _reads(source: SourceFile, node: cst.CSTNode) -> set[str]:
    """Names that are read below, which the keywords of a call are not."""
    return {n.value for n in _named(node)} & source.loads(node)


def _named(node: cst.CSTNode) -> list[cst.Name]:
    """Names below that stand for values, which attributes and the keywords of a call do not."""
    labels = {id(a.keyword) for a in find_all(node, cst.Arg)} | {id(a.attr) for a in find_all(node, cst.Attribute)}
    return [n for n in find_all(node, cst.Name) if id(n) not in labels]


def _inside(statement: cst.If | cst.Else) -> Sequence[Statement]:
    return cst.ensure_type(statement.body, cst.IndentedBlock).body


def _stored_above(source: SourceFile, function: cst.FunctionDef, first: Statement) -> set[str]:
    """Names that surely have a value there."""
    begin, found = source.lines(first)[0], set[str]()
    block = statements(function)
    while block:
        above = [s for s in block if source.lines(s)[1] < begin]
        found |= {n for s in above for n in source.stores(s) if _is_read_first(source, [s], n) is False}
        found |= {n for s in above if isinstance(s, cst.SimpleStatementLine) for n in source.stores(s)}
        around = [b for s in block for b in find_blocks(s) if _spans(source, b, begin)]
        block = around[0].body if around else ()
    return found


def _surely(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and what below it is looked at whatever conditions say."""
    yield node
    parts = node.children
    if isinstance(node, (cst.If, cst.IfExp)):
        parts = [node.test]
    elif isinstance(node, cst.BooleanOperation):
        parts = [node.left]
    for part in parts:
        yield from _surely(part)


def _globals(source: SourceFile, body: Sequence[Statement]) -> set[str]:
    """Names that these read and that are no functions, classes or modules of the file, nor of Python."""
    known = set(dir(builtins))
    for statement in source.module.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            known.add(statement.name.value)
        else:
            known |= imported_names(statement)
    return {name for statement in body for name in _reads(source, statement)} - known


def _read_outside(source: SourceFile, function: cst.FunctionDef, body: Sequence[Statement]) -> set[str]:
    inside = {id(node) for s in body for node in walk(s)}
    return {n.value for n in _named(function.body) if id(n) not in inside}
