"""Compile the outermost module of the target's own when it is made: `self.compile(...)` at the end of its `__init__`.

State dicts stay as they are, and a deepcopy or a pickle is simply not compiled. It refuses classes that have a
`compile` of their own, and third-party classes: for those it can only say what the user may write in the entry.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import dotted, find_all, is_docstring, methods, statements
from tools.rewrite.sites import largest_first, of_class

REGION_SHARE = 0.3  # of a call; less is not worth a graph of its own


def find(observation: Observation) -> list[Site]:
    """The outermost module class, if it is the target's own."""
    found = observation.callable.outermost[:1]
    return [of_class("compile", row, None if row.path else 1.0, paths=[row.path]) for row in found]


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


def settings_in(tree: Path, site: Site) -> str | None:
    """How the class is compiled already, None when it is not."""
    source = SourceFile(tree, site.file)
    call = _existing(source.method(source.class_named(site.module_class, site.line), "__init__"))
    return None if call is None else ", ".join(source.code(a) for a in call.args)


def rewrite(tree: Path, site: Site, settings: str = "") -> dict[str, str]:
    """New file contents; `settings` is the argument list of `compile`. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    if any(m.name.value == "compile" for m in methods(owner)):
        raise CannotRewrite(f"{owner.name.value} has a method named compile")
    line = f"self.compile({settings})"
    init = source.method(owner, "__init__")
    existing = _existing(init)
    if existing is not None:
        source.replace(existing, source.expression(line))
    elif init is None:
        first = statements(owner)[0]
        body = f"    super().__init__(*args, **kwargs)\n    {line}"
        (made,) = source.statements(f"def __init__(self, *args, **kwargs):\n{body}")
        source.insert(made, **({"after": first} if is_docstring(first) else {"before": first}))
    else:
        last = statements(init)[-1]
        if find_all(init, cst.Return):
            raise CannotRewrite(f"{owner.name.value}.__init__ returns early")
        source.insert(*source.statements(line), after=last)
    return {source.path: source.result()}


def _existing(init: cst.FunctionDef | None) -> cst.Call | None:
    calls = find_all(init, cst.Call) if init is not None else []
    return next((c for c in calls if dotted(c.func) == "self.compile"), None)
