"""Find out once what shapes and settings alone decide, where Python waits for the device to hear it in every call.

The statements from where the tensors are made to where the answer is used move, as they are, into a function of the
module, and `from_shapes` keeps what it gives. That the answer depends on no data was observed; `from_shapes` checks it
again in every program that runs, and else calls the function each time. Statements that do more than give names values
stay, and so do calls that are not known, but for the one in which Python waits.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Frame, Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.memoise import Memoiser
from tools.rewrite.ops_package import FROM_SHAPES
from tools.rewrite.reading.analysis import FACTORIES, PLAIN_FUNCTIONS, PURE
from tools.rewrite.reading.flow import Block
from tools.rewrite.reading.memory import escaping, touched
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import (
    Statement,
    assigned,
    base_name,
    find_all,
    find_blocks,
    imported_names,
    parameters,
    walk,
)
from tools.rewrite.sites import at_frame

_QUESTIONS = PLAIN_FUNCTIONS | {"getattr", "isinstance"}
_OPERATIONS = FACTORIES | PURE


def find(observation: Observation) -> list[Site]:
    """Functions in which tensors are made that depend on no data, and below which Python waits for a value of them.

    For each such place all of them, the outermost first: the others may lack what the outermost one makes.
    """
    found: dict[tuple[str, int, int], Site] = {}
    for row in observation.host_reads:
        for frame in reversed(row.frames if row.fixed else []):
            here = list(_made_in(observation, frame))
            if here and not frame.third_party:
                share = sum(share for _, share in here) + _share_below(observation, frame)
                made = sorted({line for line, _ in here})
                place = frame.file, frame.first_line, frame.line
                found.setdefault(place, at_frame("decision", frame, share, made=made, count=row.count))
    return list(found.values())


def _made_in(observation: Observation, frame: Frame) -> Iterator[tuple[int, float]]:
    """(line, share) where this function itself makes such tensors, before it waits."""
    for row in observation.constants:
        first = row.frames[0]
        here = (first.file, first.first_line) == (frame.file, frame.first_line) and first.line < frame.line
        if here and not row.mutated:
            yield first.line, row.share


def _share_below(observation: Observation, frame: Frame) -> float:
    here = (frame.file, frame.first_line, frame.line)
    rows = observation.constants
    return sum(row.share for row in rows if here in [(f.file, f.first_line, f.line) for f in row.frames])


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.line)
    moved = _moved(source, function, site)
    memo = Memoiser(source, function, site, FROM_SHAPES)
    stem = f"{site.module_class}_{function.name.value}_{moved.outputs[0]}"
    call = memo.statements(moved.body, moved.outputs, moved.is_outside, stem)
    first, *others = moved.body
    (line,) = source.statements(f"{', '.join(moved.outputs)} = {call}")
    blank = [above for above in getattr(first, "leading_lines", ()) if above.comment is None]
    source.replace(first, line.with_changes(leading_lines=blank))
    for other in others:
        source.replace(other)
    return source.changes()


def outputs(tree: Path, site: Site) -> list[str]:
    """The names that are found out once. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    return _moved(source, source.function_at(site.line), site).outputs


@dataclass
class _Moved:
    """Statements that stand one after the other, what they are given, and what of theirs is read later."""

    body: Sequence[Statement]
    names: set[str]  # of locals that they read and that were there before
    outputs: list[str]

    def is_outside(self, node: cst.CSTNode) -> bool:
        return bool(_of_self(node)) or (isinstance(node, cst.Name) and node.value in self.names)


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
    block = Block(source, function, begin, site.line)
    if any(isinstance(statement, (cst.For, cst.While)) for statement in block.around):
        raise CannotRewrite("that is decided in each step of a loop")
    if any(isinstance(statement, (cst.Try, cst.TryStar)) for statement in block.around):
        raise CannotRewrite("an error in the middle of it would be handled")
    inside = [at for at, s in enumerate(block.body) if any(source.spans(s, line) for line in (begin, site.line))]
    body = block.body[inside[0] : inside[-1] + 1]
    local = source.stores(function.body) | {p.name.value for p in parameters(function)}
    many = {p.name.value for p in (function.params.star_arg, function.params.star_kwarg) if isinstance(p, cst.Param)}
    plain = {name.partition(".")[0] for name in site.detail["plain_attributes"]}
    nodes = [node for statement in body for node in walk(statement)]
    for statement in body:
        _check_form(source, statement)
        if changed := touched(statement):
            raise CannotRewrite(f"{min(changed)} is changed in place")
    _check_nodes(source, nodes, plain)
    _check_calls(source, body, site.line, local)
    stored = set().union(*(source.stores(s) for s in body))
    wanted = sorted(stored & source.used_outside(function, body))
    needed, sure = _read_and_made(source, body, set())
    before = (needed & local - {"self"}) | (set(wanted) - sure)  # those may be what they were
    unknown = before - _made_above(block, body[0])
    if others := _globals(source, body) - local:
        raise CannotRewrite(f"{min(others)} may be changed, or may not be there")
    if unknown or before & many:
        raise CannotRewrite(f"{min(unknown or before & many)} may not be there, or hold anything")
    if not wanted:
        raise CannotRewrite(f"what {function.name.value} decides there is not given to a name")
    if shared := set(wanted) & escaping(function.body, {*map(id, nodes)}):
        raise CannotRewrite(f"{min(shared)} may be changed in place later")
    attributes = {name for node in nodes if (name := _of_self(node))}
    if perhaps := attributes - {name for s in body for node in _surely(s) if (name := _of_self(node))}:
        raise CannotRewrite(f"self.{min(perhaps)} may not be there")
    return _Moved(body, before, wanted)


def _check_form(source: SourceFile, statement: cst.CSTNode) -> None:
    """Raises: CannotRewrite for a statement that does more than give names values, or choose between such."""
    if isinstance(statement, cst.If) and not find_all(statement, cst.SimpleStatementSuite):
        for block in find_blocks(statement):
            for inner in block.body:
                _check_form(source, inner)
    elif not isinstance(statement, cst.SimpleStatementLine):
        raise CannotRewrite("what decides it stands in a statement that is not understood")
    elif assigned(statement) is None:
        raise CannotRewrite(f"line {source.lines(statement)[0]} does more than give a name its value")


def _check_nodes(source: SourceFile, nodes: Sequence[cst.CSTNode], plain: set[str]) -> None:
    """Raises: CannotRewrite for what is not understood, or reads more of self than these attributes."""
    known = {id(node.value) for node in nodes if isinstance(node, cst.Attribute) and _of_self(node) in plain}
    for node in nodes:
        if isinstance(node, (cst.Lambda, cst.NamedExpr, cst.Await, cst.Yield, cst.CompFor)):
            raise CannotRewrite(f"line {source.lines(node)[0]} is not understood")
        if isinstance(node, cst.Name) and node.value == "self" and id(node) not in known:
            raise CannotRewrite("it depends on more of self than plain attributes")


def _check_calls(source: SourceFile, body: Sequence[Statement], line: int, local: set[str]) -> None:
    """One may be unknown, the one in which Python waits. Raises: CannotRewrite for another, or a method of self."""
    calls = [call for statement in body for call in find_all(statement, cst.Call)]
    unknown = [call for call in calls if not _is_known(source, call, local)]
    for call in unknown:
        if len(unknown) > 1 or not source.spans(call, line) or _of_self(call.func):
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


def _read_and_made(source: SourceFile, body: Sequence[cst.CSTNode], made: set[str]) -> tuple[set[str], set[str]]:
    """(names that these may read before they give them values, names that surely have one after them)

    `made` are those that have one before.
    """
    needed, made = set[str](), set(made)
    for statement in body:
        if isinstance(statement, cst.If):
            ways = [_read_and_made(source, way, made) for way in _ways(statement)]
            needed |= (source.loads(statement.test) - made).union(*(way[0] for way in ways))
            made = ways[0][1] & ways[1][1]
        else:
            needed |= source.loads(statement) - made
            made |= source.stores(statement) if isinstance(statement, cst.SimpleStatementLine) else set()
    return needed, made


def _made_above(block: Block, first: Statement) -> set[str]:
    """Names that surely have a value before a statement of the block."""
    source, found = block.source, {p.name.value for p in parameters(block.function)}
    begin = source.lines(first)[0]
    for body in block.levels:
        found = _read_and_made(source, [s for s in body if source.lines(s)[1] < begin], found)[1]
    return found


def _ways(statement: cst.If) -> list[Sequence[cst.CSTNode]]:
    """The statements that run where its condition holds, and where it does not."""
    other = statement.orelse
    parts = [statement.body, other.body if isinstance(other, cst.Else) else other]
    return [part.body if isinstance(part, cst.IndentedBlock) else [part] if part else [] for part in parts]


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
    return {name for statement in body for name in source.loads(statement)} - known
