"""Sites from what was observed: at a place on the stack, or of a class of modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from tools.candidate import Site
from tools.observation import ClassPlace, Found, Frame

_Row = TypeVar("_Row", bound=Found)


def at_frame(kind: str, frame: Frame, share: float | None = None, /, *, line_end: int = 0, **detail: Any) -> Site:
    """A site on the frame's line, up to `line_end` where that is given."""
    known = {name: getattr(frame, name) for name in ("module", "function", "plain_attributes", "plain_parameters")}
    return Site(
        kind=kind,
        file=frame.file,
        line=frame.line,
        line_end=line_end or frame.line,
        module_class=frame.owner,
        third_party=frame.third_party,
        share=share,
        detail=known | detail,
    )


def of_class(
    kind: str, row: ClassPlace, share: float | None = None, /, *, paths: Iterable[str] = (), **detail: Any
) -> Site:
    """A site that spans a class; `paths` are the names of its instances in the model."""
    return Site(
        kind=kind,
        file=row.file,
        line=row.line,
        line_end=row.line_end,
        module_class=row.name,
        module_paths=tuple(paths),
        third_party=row.third_party,
        share=share,
        detail={"module": row.module} | detail,
    )


def by_function(rows: Iterable[_Row]) -> list[list[_Row]]:
    """Rows that happened in one function are together, in their order."""
    found: dict[tuple[str, int], list[_Row]] = {}
    for row in rows:
        for frame in row.frames[:1]:
            found.setdefault((frame.file, frame.first_line), []).append(row)
    return [*found.values()]


def largest_first(sites: Iterable[Site]) -> list[Site]:
    return sorted(sites, key=lambda site: -(site.share or 0))
