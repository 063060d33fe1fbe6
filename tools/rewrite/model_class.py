"""Change what happens when the outermost module is made or called: compiled, recorded, its layers tuned.

Calls are compiled by `self.compile(...)` at the end of the class's `__init__`, and wrapped by decorators of the class
such as `graphed`; where one cannot serve a call, it runs as before. State dicts, attributes and subclasses stay as they
are, and a deepcopy or a pickle is simply not compiled. Third-party classes stay: for those `advice` says what the user
may write in the entry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import GRAPHED, Asset, is_used, use
from tools.rewrite.reading.source import SourceFile, one_edit
from tools.rewrite.reading.syntax import dotted, find_all, is_docstring, methods, statements
from tools.rewrite.sites import largest_first, of_class

MOST_ROOTS = 3  # classes that are compiled or recorded one by one
REGION_SHARE = 0.3  # of a call; less is not worth its own graph
_CONVOLUTION = re.compile(r"_?conv(_transpose)?[123]d|_?convolution")  # functions of torch


def find(observation: Observation) -> list[Site]:
    """The outermost module classes that are the target's own: several where it calls several, the dearest first."""
    share_of = {path: row.inclusive_share for row in observation.classes for path in row.paths}
    found = [(share_of.get(row.path) if row.path else 1.0, row) for row in observation.callable.outermost]
    # as they are called again: a script pays in the first call of each for what libraries do first
    found.sort(key=lambda each: -(each[0] or 0.0))
    return [of_class("compile", row, share, paths=[row.path], methods=row.methods) for share, row in found[:MOST_ROOTS]]


def regions(observation: Observation) -> list[Site]:
    """Classes of which one model has several that take much of its time, the largest part first: its blocks."""
    return largest_first(
        of_class("compile", row, row.inclusive_share, paths=row.paths, count=row.count)
        for row in observation.classes
        if row.count > 1 and row.file and row.inclusive_share > REGION_SHARE
    )


def advice(observation: Observation, settings: str) -> str:
    """What the user can write in the entry when no class of the target can be changed."""
    called = observation.callable
    arguments = ", ".join(part for part in ("function", settings) if part)
    how = f"model.compile({settings})" if called.is_module else f"torch.compile({arguments})"
    return f"{called.name} is not the target's own class; in the entry, after building it: {how}"


def convolution_share(observation: Observation) -> float:
    """What convolutions take of a call, from 0 to 1."""
    return sum(row.share for row in observation.ops if _CONVOLUTION.fullmatch(row.name))


# -- when it is made


def settings_in(tree: Path, site: Site) -> str | None:
    """How the class is compiled already, None when it is not."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    call = _compile_call(source.method(owner, "__init__"))
    for name in filter(None, site.detail.get("methods", ())):
        method = source.method(owner, name)
        for decorator in method.decorators if method is not None else ():
            if _is_compiling(source, decorator):
                given = decorator.decorator
                return ", ".join(source.code(a) for a in given.args) if isinstance(given, cst.Call) else ""
    return None if call is None else ", ".join(source.code(a) for a in call.args)


def compile_calls(tree: Path, site: Site, settings: str = "") -> dict[str, str]:
    """New file contents; `settings` is the argument list of `compile`. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    if entered := [name for name in site.detail.get("methods", ()) if name]:
        _compile_methods(source, owner, entered, settings)
        return source.changes()
    if any(m.name.value == "compile" for m in methods(owner)):
        raise CannotRewrite(f"{owner.name.value} has a method named compile")
    line = f"self.compile({settings})"
    init = source.method(owner, "__init__")
    existing = _compile_call(init)
    if existing is not None:
        source.replace(existing, source.expression(line))
    elif init is None:
        first = statements(owner)[0]
        body = f"    super().__init__(*args, **kwargs)\n    {line}"
        (made,) = source.statements(f"def __init__(self, *args, **kwargs):\n{body}")
        source.insert(made, **({"after": first} if is_docstring(first) else {"before": first}))
    else:
        _append(source, owner, init, line)
    return source.changes()


def _compile_methods(source: SourceFile, owner: cst.ClassDef, names: Sequence[str], settings: str) -> None:
    """`@torch.compile` right above each, below decorators that are there."""
    if source.imports.get("torch") != "torch":
        raise CannotRewrite(f"{source.path} does not import torch")
    spelling = f"torch.compile({settings})" if settings else "torch.compile"
    for name in names:
        method = source.method(owner, name)
        if method is None:
            raise CannotRewrite(f"{owner.name.value} does not define {name} itself")
        others = [each for each in method.decorators if not _is_compiling(source, each)]
        decorator = cst.Decorator(source.expression(spelling))
        source.replace(method, source.edited(method).with_changes(decorators=[*others, decorator]))


def _is_compiling(source: SourceFile, decorator: cst.Decorator) -> bool:
    given = decorator.decorator
    return source.qualified(given.func if isinstance(given, cst.Call) else given) == "torch.compile"


def call_in_init(tree: Path, site: Site, asset: Asset, arguments: str = "") -> dict[str, str]:
    """A function of ours called when the module was made. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    init = source.method(owner, "__init__")
    if is_used(source, asset):
        raise CannotRewrite(f"{asset.symbol} is called already")
    if init is None:
        raise CannotRewrite(f"{owner.name.value} has no __init__ of its own")
    ours = use(source, asset, site)
    _append(source, owner, init, f"{ours}({arguments})")
    return source.changes()


def _append(source: SourceFile, owner: cst.ClassDef, init: cst.FunctionDef, line: str) -> None:
    last = statements(init)[-1]
    if find_all(init, cst.Return):
        raise CannotRewrite(f"{owner.name.value}.__init__ returns early")
    source.insert(*source.statements(line), after=last)


def _compile_call(init: cst.FunctionDef | None) -> cst.Call | None:
    calls = find_all(init, cst.Call) if init is not None else []
    return next((c for c in calls if dotted(c.func) == "self.compile"), None)


# -- when it is called


def capture(tree: Path, site: Site) -> dict[str, str]:
    """Record whole calls as graphs: `@graphed`. Raises: CannotRewrite."""
    entered = [*filter(None, site.detail.get("methods", ()))]
    return decorate(tree, site, GRAPHED, f"{{}}(of={entered!r})" if entered else "{}", "captured")


def compile_and_capture(tree: Path, site: Site, settings: str = "") -> dict[str, str]:
    """Compile calls and record them. Raises: CannotRewrite."""
    with one_edit():
        return {**compile_calls(tree, site, settings), **capture(tree, site)}


def decorate(
    tree: Path, site: Site, asset: Asset, spelling: str, done: str, *, around: Asset | None = None
) -> dict[str, str]:
    """New file contents: below all decorators that are there, or above that of `around`. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    name = is_used(source, asset)
    if name and any(_name(decorator) == name for decorator in owner.decorators):
        raise CannotRewrite(f"{owner.name.value} is {done} already")
    if any(m.name.value == "__call__" for m in methods(owner)):
        raise CannotRewrite(f"{owner.name.value} has its own __call__")
    ours = use(source, asset, site)
    decorator = cst.Decorator(source.expression(spelling.format(ours)))
    inner = around and is_used(source, around)
    places = (i for i, each in enumerate(owner.decorators) if inner and _name(each) == inner)
    place = next(places, len(owner.decorators))
    changed = [*owner.decorators[:place], decorator, *owner.decorators[place:]]
    source.replace(owner, source.edited(owner).with_changes(decorators=changed))
    return source.changes()


def _name(decorator: cst.Decorator) -> str | None:
    given = decorator.decorator
    return dotted(given.func if isinstance(given, cst.Call) else given)
