"""Count the steps of a loop once where shapes and numbers alone decide: `while t > 0` becomes `for _ in range(…)`.

What the condition needs moves into a function of the module, which counts, and `constant` keeps the number under a key
of everything it depends on. Without the condition nothing waits for the device, and a call can be compiled and recorded
as a whole. A loop that may end in another way stays, and so does one that counts by data, by what other code may
change, or by what is not understood.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.memoise import Memoiser
from tools.rewrite.ops_package import CONSTANT
from tools.rewrite.reading.analysis import PURE_IN_PLACE, Analysis, Kind
from tools.rewrite.reading.flow import Block
from tools.rewrite.reading.memory import escaping, touched
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import (
    FreshNames,
    Statement,
    assigned,
    dotted,
    find_all,
    holds,
    names_in,
    walk,
)
from tools.rewrite.sites import at_frame

_NOT_UNDERSTOOD = "what the loop counts by is made or changed in a way that is not understood"
_LEAVING = (cst.Break, cst.Continue, cst.Return, cst.Yield)


def find(observation: Observation) -> list[Site]:
    """Places where Python waits to hear whether a tensor that depends on no data is true."""
    rows = [row for row in observation.host_reads if row.fixed and row.operation == "__bool__" and row.frames]
    return [at_frame("loop", row.frames[0], count=row.count) for row in rows]


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.line)
    loop = next((loop for loop in find_all(function, cst.While) if source.spans(loop.test, site.line)), None)
    if loop is None:
        raise CannotRewrite(f"no loop asks at {source.path}:{site.line}")
    _check_form(source, function, loop)
    counted = _Counted(Analysis(source, function, site.detail["plain_attributes"]), loop)
    updates = counted.updates(cst.ensure_type(loop.body, cst.IndentedBlock).body)
    before = counted.definitions(Block(source, function, source.lines(loop)[0]))
    counted.check(before, updates)
    fresh = FreshNames(names_in(source.module))
    steps = fresh("steps")
    begin, more = source.statements(f"{steps} = 0", f"{steps} += 1")
    bare = [update.with_changes(leading_lines=[]) for update in updates]
    counting = [*before, begin, cst.While(test=loop.test, body=cst.IndentedBlock([*bare, more]))]
    local = {steps}.union(*(source.stores(statement) for statement in [*before, *updates]))
    env = {name: kind for name, kind in counted.env.items() if name not in local}
    memo = Memoiser(source, function, site, CONSTANT)
    stem = f"{site.module_class}_{function.name.value}_steps"
    call = memo.statements(counting, [steps], lambda node: counted.analysis.is_leaf(node, env), stem)
    repeated = cst.For(
        target=cst.Name(fresh("_")),
        iter=source.expression(f"range({call})"),
        body=loop.body,
        leading_lines=loop.leading_lines,
    )
    source.replace(loop, repeated)
    return source.changes()


class _Counted:
    """What a loop counts by: the names that its condition needs, and those that these are made from."""

    def __init__(self, analysis: Analysis, loop: cst.While) -> None:
        """Raises: CannotRewrite."""
        self.analysis, self.source, self.loop = analysis, analysis.source, loop
        # a name that is bound later, in the loop for one, is no name of the module
        bound = dict.fromkeys(self.source.stores(analysis.function), Kind.DATA)
        fact = analysis.facts.get(loop)
        if fact is None:  # in a `match`, whose captures are no names that it knows
            raise CannotRewrite(_NOT_UNDERSTOOD)
        self.env = {**bound, **fact.kinds}
        self.names = self._local(loop.test)
        self.carried: set[str] = set()  # those that the loop changes

    def updates(self, body: Sequence[Statement]) -> list[cst.SimpleStatementLine]:
        """The statements that change them in each step. Raises: CannotRewrite."""
        found: set[int] = set()
        while more := {at for at, s in enumerate(body) if at not in found and self._changed(s) & self.names}:
            found |= more
            self.names |= {name for at in more for name in self._local(body[at])}
        statements = [body[at] for at in sorted(found)]
        self.carried = {name for s in statements for name in self._changed(s) & self.names}
        for name in sorted(self.names - {"self"}):
            if self.env[name] is Kind.DATA and any(self._reads(node, name) for node in (self.loop.test, *statements)):
                raise CannotRewrite(f"how often the loop runs depends on {name}")
        if self.analysis.kind(self.loop.test, self.env) is Kind.DATA:
            raise CannotRewrite("how often the loop runs depends on more than shapes and numbers")
        return self._plain(statements)

    def definitions(self, block: Block) -> list[cst.SimpleStatementLine]:
        """The statements before the loop that these names come from, in order. Raises: CannotRewrite."""
        end = next((at for at, statement in enumerate(block.body) if statement is self.loop), None)
        if end is None:
            raise CannotRewrite(_NOT_UNDERSTOOD)
        found: list[int] = []
        missing = {n for n in self.names if n in self.carried or self.env[n] is Kind.BUILT}
        for at in range(end - 1, -1, -1):
            statement = block.body[at]
            if not self._changed(statement) & missing:
                continue
            found.insert(0, at)
            loaded = self._local(statement)
            value = assigned(statement)
            if value is not None and not set(value[0]) & loaded:
                missing -= set(value[0])
            missing |= {n for n in loaded if self.env[n] is Kind.BUILT}
        if missing:
            raise CannotRewrite(f"{min(missing)} is not made beside the loop")
        inside = self._plain([block.body[at] for at in found])
        needed = {n for s in inside for n in self._local(s)} - {n for s in inside for n in self.source.stores(s)}
        if found and not block.is_stable(needed - self.carried - {"self"}, found[0], end):
            raise CannotRewrite("what the loop counts by changes before it begins")
        return inside

    def check(self, before: Sequence[cst.SimpleStatementLine], updates: Sequence[cst.SimpleStatementLine]) -> None:
        """By itself it must count to the same. Raises: CannotRewrite."""
        order = [*before, self.loop.test, *updates]
        later = {n for s in (*before, *updates) for n in self.source.stores(s)}
        for node in order:
            if self._local(node) & later:
                raise CannotRewrite(_NOT_UNDERSTOOD)  # it would be read before it is made
            later -= self.source.stores(node)
        carried = {n for s in (*before, *updates) for n in self.source.stores(s)}
        leaves = [leaf for node in order for leaf in self._leaves(node)]
        if any(n.value in carried for leaf in leaves for n in find_all(leaf, cst.Name)):
            raise CannotRewrite(_NOT_UNDERSTOOD)  # `x.size(i)` would be handed in as it is at the beginning
        attributes = {leaf.attr.value for leaf in leaves if isinstance(leaf, cst.Attribute)} & {
            dotted(leaf).removeprefix("self.") for leaf in leaves if dotted(leaf).startswith("self.")
        }
        if attributes & _attributes_that_change(self.source):
            raise CannotRewrite("what the loop counts by may be changed by other code")
        # no other code may write to a tensor that it counts by; a returned one is not that of the new function
        returns = [
            s for s in find_all(self.analysis.function, cst.SimpleStatementLine) if isinstance(s.body[0], cst.Return)
        ]
        own = {id(node) for s in (*before, *updates, *returns) for node in walk(s)}
        if {n for n in self.names if self.env[n] is Kind.BUILT} & escaping(self.analysis.function.body, own):
            raise CannotRewrite("what the loop counts by is kept or changed where other code may do so")

    def _local(self, node: cst.CSTNode) -> set[str]:
        return {name for name in self.source.loads(node) if name in self.env}

    def _changed(self, statement: cst.CSTNode) -> set[str]:
        return self.source.stores(statement) | touched(statement)

    def _leaves(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What comes from outside and is more than a name, such as `x.shape[0]` or `self.steps`."""
        if self.analysis.is_leaf(node, self.env) and not isinstance(node, cst.Name):
            yield node
            return
        for child in node.children:
            yield from self._leaves(child)

    def _reads(self, node: cst.CSTNode, name: str) -> bool:
        """Whether it reads more of `name` than a fact of it, such as `x.shape`."""
        if isinstance(node, cst.Name):
            return node.value == name
        if self.analysis.is_leaf(node, self.env):
            return False
        return any(self._reads(child, name) for child in node.children)

    def _plain(self, statements: Sequence[Statement]) -> list[cst.SimpleStatementLine]:
        """The same, if all of them give names values that depend on no data. Raises: CannotRewrite."""
        simple = [s for s in statements if isinstance(s, cst.SimpleStatementLine) and self._is_plain(s)]
        if len(simple) < len(statements):
            raise CannotRewrite(_NOT_UNDERSTOOD)
        return simple

    def _is_plain(self, statement: cst.SimpleStatementLine) -> bool:
        match statement.body:
            case [cst.AugAssign(target=cst.Name(), value=value)]:
                given = [value]
            case [cst.Expr(value=cst.Call(func=cst.Attribute(value=cst.Name(), attr=method)) as call)]:
                given = [argument.value for argument in call.args]
                if method.value not in PURE_IN_PLACE:
                    return False
            case _:
                plain = assigned(statement)
                if plain is None:
                    return False
                given = [plain[1]]
        return all(self.analysis.kind(each, self.env) is not Kind.DATA for each in given)


def _check_form(source: SourceFile, function: cst.FunctionDef, loop: cst.While) -> None:
    """Raises: CannotRewrite."""
    if loop.orelse is not None or any(isinstance(node, _LEAVING) for node in walk(loop.body)):
        raise CannotRewrite("the loop may be left, or go on, in another way than by its condition")
    if not isinstance(loop.body, cst.IndentedBlock):
        raise CannotRewrite("the loop stands on one line")
    if any(f is not function and holds(f, function) for f in find_all(source.module, cst.FunctionDef)):
        raise CannotRewrite(f"{function.name.value} stands in another function")
    if any(isinstance(node, (cst.Global, cst.Nonlocal)) for node in walk(function)):
        raise CannotRewrite(f"{function.name.value} writes to names outside of it")
    if "range" in source.stores(source.module) | {p.name.value for p in find_all(source.module, cst.Param)}:
        raise CannotRewrite("`range` is a local name here")


def _attributes_that_change(source: SourceFile) -> set[str]:
    """Names of attributes that this file gives values to, other than in an `__init__`."""
    functions = [f for f in find_all(source.module, cst.FunctionDef) if f.name.value != "__init__"]
    kinds = (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Del)
    targets = [node.target for f in functions for node in walk(f) if isinstance(node, kinds)]
    parts = [e.value for t in targets if isinstance(t, (cst.Tuple, cst.List)) for e in t.elements]
    return {part.attr.value for part in (*targets, *parts) if isinstance(part, cst.Attribute)}
