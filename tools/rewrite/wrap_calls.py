"""Put something around whole calls of the outermost module: its class gets a decorator, such as `graphed` or `frozen`.

State dicts, attributes and subclasses stay as they are; where a decorator cannot serve a call, it runs as before. A
class that has a `__call__` of its own stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.rewrite import CannotRewrite, compile_model
from tools.rewrite.ops_package import FROZEN, GRAPHED, Asset, is_used, use
from tools.rewrite.reading.source import SourceFile, one_edit
from tools.rewrite.reading.syntax import dotted, methods


def capture(tree: Path, site: Site) -> dict[str, str]:
    """Record whole calls as graphs: `@graphed`. New file contents, for a site of `compile_model.find`.

    Raises: CannotRewrite.
    """
    return decorated(tree, site, GRAPHED, "{}", "captured")


def compile_and_capture(tree: Path, site: Site, settings: str = "") -> dict[str, str]:
    """Compile calls, as `compile_model.rewrite` does, and record them. Raises: CannotRewrite."""
    with one_edit():
        return {**compile_model.rewrite(tree, site, settings), **capture(tree, site)}


def freeze(tree: Path, site: Site, settings: str = "") -> dict[str, str]:
    """Compile calls with the weights as constants: `@frozen(settings)`, the arguments of torch.compile.

    Raises: CannotRewrite.
    """
    return decorated(tree, site, FROZEN, f"{{}}({settings})", "frozen")


def decorated(
    tree: Path, site: Site, asset: Asset, spelling: str, done: str, *, around: Sequence[Asset] = ()
) -> dict[str, str]:
    """New file contents: below all decorators that are there, or above those of `around`. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    name = is_used(source, asset)
    if name and any(_name(decorator) == name for decorator in owner.decorators):
        raise CannotRewrite(f"{owner.name.value} is {done} already")
    if any(m.name.value == "__call__" for m in methods(owner)):
        raise CannotRewrite(f"{owner.name.value} has a __call__ of its own")
    used = use(source, asset, site.detail["module"])
    decorator = cst.Decorator(source.expression(spelling.format(used.name)))
    inner = {name for each in around if (name := is_used(source, each))}
    place = next((i for i, each in enumerate(owner.decorators) if _name(each) in inner), len(owner.decorators))
    changed = [*owner.decorators[:place], decorator, *owner.decorators[place:]]
    source.replace(owner, source.edited(owner).with_changes(decorators=changed))
    return {**used.files, source.path: source.result()}


def _name(decorator: cst.Decorator) -> str | None:
    given = decorator.decorator
    return dotted(given.func if isinstance(given, cst.Call) else given)
