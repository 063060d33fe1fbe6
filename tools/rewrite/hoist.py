"""Build what depends on shapes alone once: rotary tables, masks and positions that every call builds again.

The statements move, as they are, into a function of the module, and its results are kept by `constant` under a key of
everything they depend on. What is changed in place, returned or stored stays where it is, and so does whatever is not
understood.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.memoise import Memoiser
from tools.rewrite.ops_package import CONSTANT
from tools.rewrite.reading.hoist_groups import Finder, Group
from tools.rewrite.reading.kinds import Kind, Kinds
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import assigned, bind, parameters, statements
from tools.rewrite.sites import at_frame, largest_first


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
    source = SourceFile(tree, site.file)
    return _groups(source, _function(source, site), site)


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
    source = SourceFile(tree, site.file)
    function = _function(source, site)
    chosen = [g for g in _groups(source, function, site) if site.detail["only"] in (None, g.title)]
    if not chosen:
        raise CannotRewrite(f"nothing in {function.name.value} is built from shapes alone")
    memo, kinds = Memoiser(source, function, site, CONSTANT), Kinds(source, site.detail["plain_attributes"])
    for group in chosen:
        _apply(memo, group, kinds, site.module_class)
    return {**memo.files, source.path: source.result()}


def _function(source: SourceFile, site: Site) -> cst.FunctionDef:
    return source.function_at(min(map(int, site.detail["lines"])))


def _groups(source: SourceFile, function: cst.FunctionDef, site: Site) -> list[Group]:
    env: dict[str, Kind] = {p.name.value: Kind.DATA for p in parameters(function)}
    kinds = Kinds(source, site.detail["plain_attributes"])
    found = Finder(source, function, kinds).groups(statements(function), env)
    return [g for g in found if any(g.lines[0] <= int(line) <= g.lines[1] for line in site.detail["lines"])]


def _apply(memo: Memoiser, group: Group, kinds: Kinds, owner: str) -> None:
    source = memo.source
    call = source.expression(_call(memo, group, kinds, owner))
    if group.expression is not None:
        source.replace(group.expression, call)
        return
    last = group.statements[-1]
    value = assigned(last)
    if value is not None and value[0] == group.names:
        source.replace(value[1], call)
    else:
        (line,) = source.statements(f"{', '.join(group.names)} = {source.module.code_for_node(call)}")
        source.replace(last, line.with_changes(leading_lines=last.leading_lines))
    for statement in group.removable:
        source.replace(statement)


def _call(memo: Memoiser, group: Group, kinds: Kinds, owner: str) -> str:
    def is_leaf(node: cst.CSTNode) -> bool:
        return kinds.is_leaf(node, env)

    if (direct := _direct_call(memo.source, group, kinds)) is not None:
        return memo.call(*direct)
    stem, env = memo.function.name.value.strip("_"), group.env
    if stem == "forward" and owner:
        stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", owner.rpartition(".")[2])
    if group.expression is not None:
        return memo.expression(group.expression, is_leaf, f"{stem}_constant")
    local = set().union(*(memo.source.stores(s) for s in group.statements))
    env = {name: kind for name, kind in group.env.items() if name not in local}
    return memo.statements(group.statements, group.names, is_leaf, f"{stem}_{'_'.join(group.names)}")


def _direct_call(source: SourceFile, group: Group, kinds: Kinds) -> tuple[str, list[str]] | None:
    """(function, arguments) when the group is one call of a function that can be kept as it is."""
    value = group.expression
    if value is None:
        assignment = assigned(group.statements[-1])
        if len(group.statements) != 1 or assignment is None or assignment[0] != group.names:
            return None
        value = assignment[1]
    if not isinstance(value, cst.Call) or not isinstance(value.func, cst.Name):
        return None
    found = source.called_function(value.func.value)
    if found is None or any(kinds.of(a.value, group.env) is not Kind.PLAIN for a in value.args):
        return None
    given = dict(zip(bind(found[1], value), (source.code(a.value) for a in value.args), strict=True))
    order = [p.name.value for p in found[1].params.params][: len(given)]
    return (value.func.value, [given[name] for name in order]) if set(order) == set(given) else None
