"""Build what depends on shapes alone once: rotary tables, masks and positions that every call makes anew.

The statements move, as they are, into a function of the module, and its results are kept by `constant` under a key of
everything they depend on. It refuses what is changed in place, returned or stored (somebody else could change it),
and whatever is not understood.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import CONSTANT, use
from tools.rewrite.reading.hoist_groups import Finder, Group
from tools.rewrite.reading.kinds import Kind, Kinds
from tools.rewrite.reading.lift import Lifted, lift, lift_expression
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import (
    assigned,
    bind,
    find_all,
    parameters,
    statements,
)


def find(observation: Observation) -> list[Site]:
    """One site for each function in which tensors were built that depended on no data."""
    found: dict[tuple[str, int], Site] = {}
    for record in observation.constants:
        for frame in record.frames:
            if frame.third_party or record.mutated:
                continue
            key = (frame.file, frame.first_line)
            old = found.get(key)
            lines = {**(old.detail["lines"] if old else {})}
            lines[str(frame.line)] = lines.get(str(frame.line), 0.0) + record.share
            found[key] = Site(
                kind="constants",
                file=frame.file,
                line=frame.first_line,
                line_end=frame.line,
                module_class=frame.owner,
                share=sum(lines.values()),
                detail={
                    "lines": lines,
                    "module": frame.module,
                    "function": frame.function,
                    "plain_attributes": frame.plain_attributes,
                    "only": None,
                },
            )
    return sorted(found.values(), key=lambda site: -(site.share or 0))


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
    chosen = [g for g in _groups(source, function, site) if site.detail.get("only") in (None, g.title)]
    if not chosen:
        raise CannotRewrite(f"nothing in {function.name.value} is built from shapes alone")
    used = use(source, CONSTANT, site.detail["module"])
    kinds = Kinds(source, site.detail["plain_attributes"])
    taken = {n.value for n in find_all(source.module, cst.Name)}
    for group in chosen:
        _apply(source, function, group, kinds, used.name, taken, site.module_class)
    return {**used.files, source.path: source.result()}


def _function(source: SourceFile, site: Site) -> cst.FunctionDef:
    line = min(int(line) for line in site.detail["lines"])
    return source.function_at(line)


def _apply(
    source: SourceFile,
    function: cst.FunctionDef,
    group: Group,
    kinds: Kinds,
    constant: str,
    taken: set[str],
    owner: str,
) -> None:
    direct = _direct_call(source, group, kinds)
    if direct is not None:
        builder, arguments = direct
    else:
        made = _lifted(source, function, group, kinds, taken, owner)
        source.insert(made.function, before=source.top_level_of(function))
        taken.add(made.name)
        builder, arguments = made.name, made.arguments
    call = cst.parse_expression(f"{constant}({', '.join([builder, *arguments])})", source.module.config_for_parsing)
    if group.expression is not None:
        source.replace(group.expression, call)
        return
    last = group.statements[-1]
    value = assigned(last)
    if value is not None and value[0] == group.names:
        source.replace(value[1], call)
    else:
        target = ", ".join(group.names)
        line = cst.parse_statement(f"{target} = x", source.module.config_for_parsing)
        assert isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Assign)
        new = line.with_changes(
            body=[line.body[0].with_changes(value=call)],
            leading_lines=last.leading_lines,
        )
        source.replace(last, new)
    for statement in group.removable:
        source.replace(statement)


def _lifted(
    source: SourceFile, function: cst.FunctionDef, group: Group, kinds: Kinds, taken: set[str], owner: str
) -> Lifted:
    stem = function.name.value.strip("_")
    if stem == "forward" and owner:
        stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", owner.rpartition(".")[2]).lower()
    if group.expression is not None:
        return lift_expression(source, group.expression, group.env, kinds, f"_{stem}_constant", taken)
    return lift(source, group.statements, group.names, group.env, kinds, f"_{stem}_{'_'.join(group.names)}", taken)


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
    if any(kinds.of(a.value, group.env) is not Kind.PLAIN for a in value.args):
        return None
    name = value.func.value
    function = source.function(name)
    if function is None:
        elsewhere = source.imported_function(name)
        function = elsewhere[1] if elsewhere else None
    if function is None:
        return None
    names = bind(function, value)
    order = [p.name.value for p in function.params.params][: len(names)]
    if set(order) != set(names):
        return None
    texts = dict(zip(names, (source.code(a.value) for a in value.args), strict=True))
    return name, [texts[n] for n in order]


# -- finding the groups


def _groups(source: SourceFile, function: cst.FunctionDef, site: Site) -> list[Group]:
    kinds = Kinds(source, site.detail["plain_attributes"])
    env: dict[str, Kind] = {p.name.value: Kind.DATA for p in parameters(function)}
    found = Finder(source, function, kinds).groups(statements(function), env)
    seen = {int(line) for line in site.detail["lines"]}
    return [g for g in found if any(g.lines[0] <= line <= g.lines[1] for line in seen)]
