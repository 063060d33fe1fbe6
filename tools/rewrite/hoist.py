"""Build what depends on shapes alone once: rotary tables, masks and positions that every call builds again.

The statements move, as they are, into a function of the module, and its results are kept by `constant` under a key of
everything they depend on. What is changed in place, returned or stored stays where it is, and so does whatever is not
understood.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.memoise import Memoiser
from tools.rewrite.ops_package import CONSTANT
from tools.rewrite.reading.analysis import Analysis, Env, Kind
from tools.rewrite.reading.memory import escaping, touched
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import assigned, bind, find_all, find_blocks, simple_statements, statements
from tools.rewrite.sites import at_frame, largest_first

_OPERATIONS = (cst.Call, cst.BinaryOperation, cst.Subscript)


@dataclass
class Group:
    """Statements (or one expression) that can be built once, and the lines they stand on."""

    statements: Sequence[cst.SimpleStatementLine]
    names: list[str]
    lines: tuple[int, int]
    env: Env
    expression: cst.BaseExpression | None = None
    removable: Sequence[cst.SimpleStatementLine] = ()

    @property
    def title(self) -> str:
        return ", ".join(self.names) if self.names else "an expression"


def find(observation: Observation) -> list[Site]:
    """One site for each function in which tensors were built that depended on no data."""
    found: dict[tuple[str, int], Site] = {}
    for record in observation.constants:
        for frame in record.frames:
            if frame.third_party or record.mutated:
                continue
            old = found.get((frame.file, frame.first_line))
            lines = dict(old.detail["lines"]) if old else {}
            lines[str(frame.line)] = lines.get(str(frame.line), 0.0) + record.share
            site = at_frame("constants", frame, sum(lines.values()), lines=lines, only=None)
            found[frame.file, frame.first_line] = site.model_copy(update={"line": frame.first_line})
    return largest_first(found.values())


def groups(tree: Path, site: Site) -> list[Group]:
    """What can be hoisted in the site's function and was seen to run, in source order. Raises: CannotRewrite."""
    return _groups(_analysis(tree, site), site)


def sites(tree: Path, observation: Observation) -> list[Site]:
    """Those of `find` in whose own source something can be hoisted."""
    found = []
    for site in find(observation):
        with contextlib.suppress(CannotRewrite):
            if groups(tree, site):
                found.append(site)
    return found


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. `site.detail["only"]` picks one group by its title. Raises: CannotRewrite."""
    analysis = _analysis(tree, site)
    chosen = [g for g in _groups(analysis, site) if site.detail["only"] in (None, g.title)]
    if not chosen:
        raise CannotRewrite(f"nothing in {analysis.function.name.value} is built from shapes alone")
    memo = Memoiser(analysis.source, analysis.function, site, CONSTANT)
    for group in chosen:
        _apply(memo, group, analysis, site.module_class)
    return analysis.source.changes()


def _analysis(tree: Path, site: Site) -> Analysis:
    source = SourceFile(tree, site.file)
    return Analysis(source, source.function_at(min(map(int, site.detail["lines"]))), site.detail["plain_attributes"])


def _groups(analysis: Analysis, site: Site) -> list[Group]:
    found = _Finder(analysis).groups(statements(analysis.function))
    return [g for g in found if any(g.lines[0] <= int(line) <= g.lines[1] for line in site.detail["lines"])]


# -- what can be built once


@dataclass
class _Slices:
    """Of the statements of a block that only build tensors, by index."""

    needs: dict[int, set[int]] = field(default_factory=dict)
    """The slice that makes it: itself, and all that it is made from."""
    names: dict[int, list[str]] = field(default_factory=dict)
    """What it makes."""
    used_at: dict[int, int] = field(default_factory=dict)
    """The first statement of another kind that reads it."""

    def merged(self) -> list[set[int]]:
        """Statements that share work and are used only after the last of them belong together."""
        merged: list[set[int]] = []
        for index in sorted(self.used_at):
            for other in merged:
                shared = self.needs[index] & set().union(*(self.needs[o] for o in other))
                if shared and all(self.used_at[o] > index for o in other):
                    other.add(index)
                    break
            else:
                merged.append({index})
        return merged


class _Finder:
    """Finds statements and expressions that build tensors from plain values alone, and that no other code changes."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis, self.source = analysis, analysis.source

    def groups(self, body: Sequence[cst.BaseStatement]) -> list[Group]:
        slices, defined = _Slices(), dict[str, int]()
        found: list[Group] = []
        for index, statement in enumerate(body):
            loaded, stored = self.source.loads(statement), self.source.stores(statement)
            if self.analysis.facts[statement].builds:
                loaded |= touched(statement)
                slices.needs[index] = {index}.union(*(slices.needs[defined[n]] for n in loaded if n in defined))
                slices.names[index] = _in_order(statement, stored or touched(statement))
                defined.update(dict.fromkeys(slices.names[index], index))
                continue
            for name in loaded & defined.keys():
                slices.used_at.setdefault(defined[name], index)
            found += self._inside(statement)
            for name in stored:
                defined.pop(name, None)
        found += filter(None, (self._group(body, chosen, slices) for chosen in slices.merged()))
        return sorted(found, key=lambda g: g.lines)

    def _group(self, body: Sequence[cst.BaseStatement], chosen: set[int], slices: _Slices) -> Group | None:
        indices = sorted(set().union(*(slices.needs[i] for i in chosen)))
        names = list(dict.fromkeys(n for i in sorted(chosen) for n in slices.names[i]))
        inside = [cst.ensure_type(body[i], cst.SimpleStatementLine) for i in indices]
        if not any(find_all(statement, cst.Call) for statement in inside) or self._escapes(names, set(map(id, inside))):
            return None
        env = self.analysis.facts[inside[-1]].kinds
        leaves = {n for s in inside for n in self.source.loads(s) if env.get(n) is not Kind.BUILT}
        between = [body[i] for i in range(indices[0], indices[-1]) if i not in indices]
        if leaves & {n for s in between for n in self.source.stores(s)}:
            return None
        # statements of the slice that something outside of it still reads must stay
        still_read = {i for user, needed in slices.needs.items() if user not in indices for i in needed}
        gone = [i for i in indices[:-1] if i in chosen or not (i in slices.used_at or i in still_read)]
        lines = self.source.lines(inside[0])[0], self.source.lines(inside[-1])[1]
        return Group(
            inside, names, lines, env, removable=[s for i, s in zip(indices, inside, strict=True) if i in gone]
        )

    def _escapes(self, names: Sequence[str], inside: set[int]) -> bool:
        """Whether other code could change the tensor in place: here, or after it was handed out."""
        return bool(set(names) & escaping(self.analysis.function.body, inside))

    def _inside(self, statement: cst.CSTNode) -> list[Group]:
        """Groups in the blocks of a compound statement, or expressions within a simple one."""
        if isinstance(statement, cst.SimpleStatementLine):
            env = self.analysis.facts[statement].kinds
            return [Group([], [], self.source.lines(e), env, e) for e in self._expressions(statement, env)]
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            return []
        return [group for block in find_blocks(statement) for group in self.groups(block.body)]

    def _expressions(self, statement: cst.SimpleStatementLine, env: Env) -> Iterator[cst.BaseExpression]:
        """The largest expressions that are built from shapes, none of them merely a name."""
        leaves = bool(simple_statements(statement, cst.Return)) or any(
            isinstance(t.target, (cst.Attribute, cst.Subscript)) for t in find_all(statement, cst.AssignTarget)
        )
        keep_bare = leaves or self._escapes(sorted(self.source.stores(statement)), set())
        stack: list[tuple[cst.CSTNode, bool]] = [(child, True) for child in statement.children]
        while stack:
            node, bare = stack.pop()
            if isinstance(node, (cst.Lambda, cst.BaseComp)):
                continue  # it runs later, or many times
            if isinstance(node, _OPERATIONS) and self.analysis.kind(node, env) is Kind.BUILT:
                # a bare one is what the statement returns, stores or binds: whoever gets it may change it
                if find_all(node, cst.Call) and not (bare and keep_bare):
                    yield node
                continue
            bare = bare and not isinstance(node, (*_OPERATIONS, cst.Attribute, cst.UnaryOperation, cst.Comparison))
            stack += [(child, bare) for child in node.children]


def _in_order(statement: cst.CSTNode, names: set[str]) -> list[str]:
    """Names in the order in which an assignment has them."""
    value = assigned(statement)
    order = value[0] if value is not None else []
    return sorted(names, key=lambda name: order.index(name) if name in order else 0)


# -- the change


def _apply(memo: Memoiser, group: Group, analysis: Analysis, owner: str) -> None:
    source = memo.source
    call = source.expression(_call(memo, group, analysis, owner))
    if group.expression is not None:
        source.replace(group.expression, call)
        return
    last = group.statements[-1]
    value = assigned(last)
    if value is not None and value[0] == group.names:
        source.replace(value[1], call)
    else:
        source.replace_statement(last, f"{', '.join(group.names)} = {source.module.code_for_node(call)}")
    for statement in group.removable:
        source.replace(statement)


def _call(memo: Memoiser, group: Group, analysis: Analysis, owner: str) -> str:
    if (direct := _direct_call(group, analysis)) is not None:
        return memo.call(*direct)
    stem = memo.function.name.value.strip("_")
    if stem == "forward" and owner:
        stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", owner.rpartition(".")[2])
    local = set().union(*(memo.source.stores(s) for s in group.statements))
    env = {name: kind for name, kind in group.env.items() if name not in local}

    def is_leaf(node: cst.CSTNode) -> bool:
        return analysis.is_leaf(node, env)

    if group.expression is not None:
        return memo.expression(group.expression, is_leaf, f"{stem}_constant")
    return memo.statements(group.statements, group.names, is_leaf, f"{stem}_{'_'.join(group.names)}")


def _direct_call(group: Group, analysis: Analysis) -> tuple[str, list[str]] | None:
    """(function, arguments) when the group is one call of a function that can be kept as it is."""
    value, source = group.expression, analysis.source
    if value is None:
        assignment = assigned(group.statements[-1])
        if len(group.statements) != 1 or assignment is None or assignment[0] != group.names:
            return None
        value = assignment[1]
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Name):
        return None
    found = source.called_function(value.func.value)
    if found is None or any(analysis.kind(a.value, group.env) is not Kind.PLAIN for a in value.args):
        return None
    given = dict(zip(bind(found[1], value), (source.code(a.value) for a in value.args), strict=True))
    order = [p.name.value for p in found[1].params.params][: len(given)]
    return (value.func.value, [given[name] for name in order]) if set(order) == set(given) else None
