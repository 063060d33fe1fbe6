"""Build what depends on shapes alone once: rotary tables, masks and positions that every call builds again.

The statements move, as they are, into a function of the module, and its results are kept by `constant` under a key of
everything they depend on. What is changed in place, returned or stored stays where it is, and so does whatever is not
understood. What is computed on the host still is, to the same bits. What was seen to go from there to a device in each
call goes once: an index too, and what is changed or returned is copied on the device.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Frame, Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.memoise import Memoiser
from tools.rewrite.ops_package import CONSTANT
from tools.rewrite.reading.analysis import Analysis, Env, Kind
from tools.rewrite.reading.memory import escapes, touched
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import (
    FreshNames,
    assigned,
    bind,
    find_all,
    find_blocks,
    index_values,
    names_in,
    simple_statements,
    statements,
)
from tools.rewrite.sites import at_frame, largest_first
from tools.rewrite.slices import Group, Slices, is_on

_OPERATIONS = (cst.Call, cst.BinaryOperation, cst.Subscript)


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
            sent = _sent(observation, frame)
            site = at_frame("constants", frame, sum(lines.values()), lines=lines, sent=sent, only=None)
            found[frame.file, frame.first_line] = site.model_copy(update={"line": frame.first_line})
    return largest_first(found.values())


def _sent(observation: Observation, frame: Frame) -> list[int]:
    """Lines of its function from where such tensors go from the host to a device."""
    return sorted(
        {
            each.line
            for row in observation.host_copies
            for each in (row.frames if row.fixed else ())
            if (each.file, each.first_line) == (frame.file, frame.first_line)
        }
    )


def groups(tree: Path, site: Site) -> list[Group]:
    """What can be hoisted in the site's function and was seen to run, in source order. Raises: CannotRewrite."""
    return _groups(_analysis(tree, site), site)


def sites(tree: Path, observation: Observation, leave: str = "") -> list[Site]:
    """Those of `find` in whose own source something can be hoisted, as far up as it can: what one function builds by
    calling another is built there. The file `leave` stays as it is.
    """
    found, wanted = dict[tuple[str, int], tuple[Site, list[Group]]](), set[tuple[str, int]]()
    for site in find(observation):
        with contextlib.suppress(CannotRewrite):
            if site.file != leave:
                found[site.file, site.line] = site, groups(tree, site)
    for row in observation.constants:
        places = (((f.file, f.first_line), f.line) for f in reversed(row.frames))
        builds = (place for place, line in places if any(g.is_on([line]) for g in found.get(place, ((), ()))[1]))
        wanted.update([*builds][:1])
    return [site for place, (site, _) in found.items() if place in wanted]


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
    function, known = source.function_at(min(map(int, site.detail["lines"]))), site.detail
    return Analysis(source, function, known["plain_attributes"], known["plain_parameters"])


def _groups(analysis: Analysis, site: Site) -> list[Group]:
    built, sent = map(int, site.detail["lines"]), site.detail["sent"]
    return _Finder(analysis, {*built}, {*sent}).groups(statements(analysis.function))


# -- what can be built once


class _Finder:
    """Finds statements and expressions that build tensors from plain values alone, and that no other code changes."""

    def __init__(self, analysis: Analysis, built: Collection[int], sent: Collection[int]) -> None:
        """Lines on which such tensors were seen to be built, and to be sent to a device."""
        self.analysis, self.source, self._built, self._sent = analysis, analysis.source, built, sent

    def groups(self, body: Sequence[cst.BaseStatement]) -> list[Group]:
        slices, defined = Slices(), dict[str, int]()
        found: list[Group] = []
        for index, statement in enumerate(body):
            loaded, stored = self.source.loads(statement), self.source.stores(statement)
            if self.analysis.facts[statement].builds:
                loaded |= touched(statement)
                slices.needs[index] = {index}.union(*(slices.needs[defined[n]] for n in loaded if n in defined))
                slices.names[index] = _in_order(statement, stored or touched(statement))
                defined.update(dict.fromkeys(slices.names[index], index))
                continue
            if isinstance(statement, cst.SimpleStatementLine):
                loaded -= self._take_expressions(body, index, slices, defined)
            elif not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                found += [group for block in find_blocks(statement) for group in self.groups(block.body)]
            for name in loaded & defined.keys():
                slices.used_at.setdefault(defined[name], index)
            for name in stored:
                defined.pop(name, None)
        groups = filter(None, (self._group(body, chosen, slices) for chosen in slices.merged()))
        found += [group for group in groups if group.is_on(self._built)]
        left_over = slices.left_over()
        for group, needed in slices.within:
            group.removable = [_line(body[i]) for i in sorted(needed & left_over)]
            found.append(group)
        return sorted(found, key=lambda g: g.lines)

    def _group(self, body: Sequence[cst.BaseStatement], chosen: set[int], slices: Slices) -> Group | None:
        indices = sorted(set().union(*(slices.needs[i] for i in chosen)))
        names = list(dict.fromkeys(n for i in sorted(chosen) for n in slices.names[i]))
        env = self.analysis.facts[body[indices[-1]]].kinds
        moved = self._movable(body, indices, indices[-1], env)
        inside = [_line(body[i]) for i in moved]
        if not any(find_all(statement, cst.Call) for statement in inside):
            return None
        lines = self.source.lines(inside[0])[0], self.source.lines(inside[-1])[1]
        cloned = self._escapes(names, inside, body[indices[-1] + 1 :])
        if cloned and not (len(names) == 1 and is_on(lines, self._sent)):
            return None
        # statements of the slice that something outside of it still reads must stay
        still_read = {i for user, needed in slices.needs.items() if user not in indices for i in needed}
        still_read |= slices.read_within()
        gone = [i for i in indices[:-1] if i in chosen or not (i in slices.used_at or i in still_read)]
        if len(gone) == len(indices) - 1:
            gone += [i for i in moved if i not in indices and not self._is_read(body, i, moved)]
        return Group(inside, names, lines, env, removable=[_line(body[i]) for i in gone], cloned=cloned)

    def _movable(self, body: Sequence[cst.BaseStatement], indices: Sequence[int], end: int, env: Env) -> list[int]:
        """The statements of a function that is called at `end` for these; none where others change what they read."""
        moved = self._with_plain(body, indices)
        leaves = {n for i in moved for n in self.source.loads(body[i]) if env.get(n) is not Kind.BUILT}
        between = [body[i] for i in range(moved[0], end) if i not in moved] if moved else []
        return [] if leaves & {n for s in between for n in self.source.stores(s) | touched(s)} else moved

    def _is_read(self, body: Sequence[cst.BaseStatement], at: int, moved: Sequence[int]) -> bool:
        """Whether other statements than these read what one of them gives to a name, before the last gives it more."""
        others = (body[i] for i in range(at + 1, moved[-1]) if i not in moved)
        return any(self.source.stores(body[at]) & self.source.loads(statement) for statement in others)

    def _with_plain(self, body: Sequence[cst.BaseStatement], indices: Sequence[int]) -> list[int]:
        """With the statements that give a plain value to a name which these read before they give it a tensor; none
        where that is not understood.
        """
        stored, made, found = {n for i in indices for n in self.source.stores(body[i])}, set[str](), set(indices)
        for i in indices:
            for name in (self.source.loads(body[i]) & stored) - made:
                at = max((at for at in range(i) if name in self.source.stores(body[at])), default=-1)
                value = assigned(body[at]) if at >= 0 else None
                plain = value is not None and self.analysis.kind(value[1], self.analysis.facts[body[at]].kinds)
                if plain is not Kind.PLAIN or self.source.loads(body[at]) & stored:
                    return []
                found.add(at)
            made |= self.source.stores(body[i])
        return sorted(found)

    def _take_expressions(
        self, body: Sequence[cst.BaseStatement], at: int, slices: Slices, defined: Mapping[str, int]
    ) -> set[str]:
        """Put the expressions of a statement that are built once into `slices`. Names that only these read."""
        statement = _line(body[at])
        env, taken = self.analysis.facts[statement].kinds, set[cst.CSTNode]()
        indexed = {id(index): each for each in find_all(statement, cst.Subscript) for index in index_values(each)}
        devices = {index: device for index, each in indexed.items() if (device := self._device(each, env)) is not None}
        for value, cloned in self._expressions(statement, env, devices):
            read = [name for name in self.source.loads(value) if env.get(name) is Kind.BUILT]
            lines = self.source.lines(value)
            if read and not (self._is_sent(value) and all(name in defined for name in read)):
                continue  # the names are built once, as far as this block builds them
            if not is_on(lines, {*self._built, *self._sent}):
                continue
            needed = set[int]().union(*(slices.needs[defined[name]] for name in read))
            made = [name for i in sorted(needed) for name in slices.names[i]]
            inside = [_line(body[i]) for i in self._movable(body, sorted(needed), at, env)] if needed else []
            names = {*find_all(value, cst.Name)}
            alone = not any(n.value in made for n in find_all(statement, cst.Name) if n not in names)
            # what is cloned may be handed out by the expression itself
            allowed = [*inside, statement] if cloned and alone else inside
            if needed and (not inside or self._escapes(made, allowed, body[max(needed) + 1 :])):
                continue
            lines = self.source.lines(inside[0] if inside else value)[0], lines[1]
            group = Group(inside, [], lines, env, value, device=devices.get(id(value)), cloned=cloned, made=made[-1:])
            slices.within.append((group, needed))
            taken |= names
        left = {name.value for name in find_all(statement, cst.Name) if name not in taken}
        return {name.value for name in taken if isinstance(name, cst.Name)} - left

    def _is_sent(self, node: cst.CSTNode) -> bool:
        return is_on(self.source.lines(node), self._sent)

    def _device(self, indexed: cst.Subscript | None, env: Env) -> cst.Attribute | None:
        """That of what is indexed, as an expression, where an index goes there from the host."""
        if indexed is None or not self._is_sent(indexed):
            return None
        device = cst.Attribute(indexed.value, cst.Name("device"))
        known = self.analysis.kind(device, env) is Kind.PLAIN and self.analysis.is_leaf(device, env)
        return device if known else None

    def _escapes(
        self, names: Iterable[str], inside: Sequence[cst.CSTNode] = (), after: Sequence[cst.CSTNode] = ()
    ) -> bool:
        """Whether other code could change the tensors in place: here, or after they were handed out."""
        body, allowed = self.analysis.function.body, {*map(id, inside)}
        return any(escapes(name, body, allowed, after) for name in names)

    def _expressions(
        self, statement: cst.SimpleStatementLine, env: Env, devices: Collection[int]
    ) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """The largest expressions that are built from shapes, none of them merely a name, but for those that `devices`
        has: they go to a device. Whether other code may change what they give.
        """
        leaves = bool(simple_statements(statement, cst.Return)) or any(
            isinstance(t.target, (cst.Attribute, cst.Subscript)) for t in find_all(statement, cst.AssignTarget)
        )
        keep_bare = leaves or self._escapes(self.source.stores(statement))
        stack: list[tuple[cst.CSTNode, bool]] = [(child, True) for child in statement.children]
        while stack:
            node, bare = stack.pop()
            if isinstance(node, (cst.Lambda, cst.BaseComp)):
                continue  # it runs later, or many times
            if isinstance(node, (*_OPERATIONS, cst.Name)) and self.analysis.kind(node, env) is Kind.BUILT:
                # a bare one is what the statement returns, stores or binds: whoever gets it may change it
                changed = bare and keep_bare and id(node) not in devices
                if id(node) in devices or (find_all(node, cst.Call) and not (changed and not self._is_sent(node))):
                    yield node, changed
                continue
            bare = bare and not isinstance(node, (*_OPERATIONS, cst.Attribute, cst.UnaryOperation, cst.Comparison))
            stack += [(child, bare) for child in node.children]


def _line(statement: cst.CSTNode) -> cst.SimpleStatementLine:
    return cst.ensure_type(statement, cst.SimpleStatementLine)


def _in_order(statement: cst.CSTNode, names: set[str]) -> list[str]:
    """Names in the order in which an assignment has them."""
    value = assigned(statement)
    order = value[0] if value is not None else []
    return sorted(names, key=lambda name: order.index(name) if name in order else 0)


# -- the change


def _apply(memo: Memoiser, group: Group, analysis: Analysis, owner: str) -> None:
    source = memo.source
    call = source.expression(_call(memo, group, analysis, owner) + (".clone()" if group.cloned else ""))
    if group.expression is not None:
        source.replace(group.expression, call)
    elif (value := assigned(group.statements[-1])) is not None and value[0] == group.names:
        source.replace(value[1], call)
    else:
        source.replace_statement(
            group.statements[-1], f"{', '.join(group.names)} = {source.module.code_for_node(call)}"
        )
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

    body, names = [*group.statements], group.names
    if (value := group.expression) is not None:
        value = value if group.device is None else _moved(value, group.device)
        if not body:
            return memo.expression(value, is_leaf, f"{stem}_constant")
        names = [FreshNames(names_in(memo.function))("made")]
        body.append(cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(names[0]))], value)]))
    return memo.statements(body, names, is_leaf, f"{stem}_{'_'.join(names)}")


def _moved(value: cst.BaseExpression, device: cst.Attribute) -> cst.Call:
    """`value.to(device)`"""
    if not isinstance(value, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
        value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Call(cst.Attribute(value, cst.Name("to")), [cst.Arg(device)])


def _direct_call(group: Group, analysis: Analysis) -> tuple[str, list[str]] | None:
    """(function, arguments) when the group is one call of a function that can be kept as it is."""
    value, source = group.expression, analysis.source
    if group.device is not None or (value is not None and group.statements):
        return None
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
