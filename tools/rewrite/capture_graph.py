"""Capture whole calls of the outermost module as graphs: its class gets the decorator `graphed`.

State dicts, attributes and subclasses stay as they are; what cannot be replayed runs as before. It refuses a class
that has a `__call__` of its own.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import GRAPHED, is_used, use
from tools.rewrite.source import SourceFile
from tools.rewrite.syntax import dotted, methods


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents, for a site of `compile_model.find`. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    name = is_used(source, GRAPHED)
    if name and any(dotted(d.decorator) == name for d in owner.decorators):
        raise CannotRewrite(f"{owner.name.value} is captured already")
    if any(m.name.value == "__call__" for m in methods(owner)):
        raise CannotRewrite(f"{owner.name.value} has a __call__ of its own")
    used = use(source, GRAPHED, site.detail["module"])
    decorator = cst.Decorator(cst.Name(used.name))
    source.replace(owner, owner.with_changes(decorators=[*owner.decorators, decorator]))
    return {**used.files, source.path: source.result()}
