"""Leave out padding: positions that the mask of a call excludes in every row are cut off before the module is called.

It refuses a callable that is no module of a class with its own `forward`, and arguments that it does not name.
"""

from __future__ import annotations

from pathlib import Path

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite, model_class
from tools.rewrite.ops_package import GRAPHED, PADDING
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import parameters
from tools.rewrite.sites import of_class


def find(observation: Observation) -> list[Site]:
    """The callable, where a mask pads its arguments: the case that gains most decides which."""
    called = observation.callable
    rows = sorted(observation.padding, key=lambda row: -row.share)
    if not rows or not called.is_module:
        return []
    best, share = rows[0], sum(row.share for row in rows) / len(observation.call_us)
    return [of_class("padding", called, share, mask=best.mask, value=best.value, names=best.arguments)]


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    forward = source.method(owner, "forward")
    if forward is None:
        raise CannotRewrite(f"{owner.name.value} has no forward of its own")
    plain = [parameter.name.value for parameter in parameters(forward)][1:]
    names = [_name(plain, argument) for argument in site.detail["names"]]
    mask = _name(plain, site.detail["mask"])
    value = site.detail["value"]
    arguments = [
        *(f'"{name}"' for name in names),
        f'mask="{mask}"',
        *([] if value == 0 and type(value) is int else [f"padding={value!r}"]),
    ]
    spelling = f"{{}}({', '.join(arguments)})"
    return model_class.decorate(tree, site, PADDING, spelling, "called without padding", around=GRAPHED)


def _name(plain: list[str], argument: str | int) -> str:
    if isinstance(argument, int) and argument < len(plain):
        return plain[argument]
    if argument in plain:
        return str(argument)
    raise CannotRewrite(f"argument {argument} is not named by forward")
