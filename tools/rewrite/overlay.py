"""Library code is changed in copies: the package `optimized/` beside the entry, whose import puts them in place.

What was observed in a library is mapped to the file that its copy would be, so that every rewriter works on it as on
the target's own. Does not touch an `optimized/` that is not ours. A copy keeps its lines; its last one is added, and
says what it is a copy of.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from tools.observation import LibrarySource, Observation, OutermostClass

PACKAGE, COPIES = "optimized", "overlay"
MARK = "# Ratchet: optimized."
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_VERSION = re.compile(r"[\w.+!-]{1,60}")


@dataclass(frozen=True)
class View:
    """A tree as rewriters see it: with a copy of each library module in which something was found."""

    tree: Path
    observation: Observation
    copies: Mapping[str, str]
    """Path of a copy in the tree -> the module it is a copy of."""


def view(tree: Path, entry: str, seen: Observation, into: Path) -> View:
    """Make the view at `into`, which is not there yet. Nothing in it is written to afterwards."""
    folder = PurePosixPath(entry).parent / PACKAGE
    shutil.copytree(tree, into, symlinks=True)
    known = [each for each in seen.sources if _may_be_copied(each)] if _is_free(tree / folder) else []
    copies = {str(folder / COPIES / f"{each.module}.py"): each for each in known}
    for path, source in copies.items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        with (into / path).open("w", encoding="utf-8", newline="") as file:
            file.write(_copy(source))
    places = {source.file: path for path, source in copies.items()}
    return View(into, _mapped(seen, places), {path: source.module for path, source in copies.items()})


def runtime(path: str) -> dict[str, str]:
    """The files that a copy at `path` needs beside it; nothing for a path that is none of a copy."""
    folder = root_of(path)
    if not folder:
        return {}
    assets = files("skills") / "amd-kernel-optimization" / "assets"
    return {
        f"{folder}/__init__.py": (assets / "optimized.py").read_text(encoding="utf-8"),
        f"{folder}/__main__.py": (assets / "optimized_main.py").read_text(encoding="utf-8"),
    }


def root_of(path: str) -> str:
    """The folder of the package that holds this copy; empty for a path that is none of a copy."""
    parent = PurePosixPath(path).parent
    return str(parent.parent) if (parent.parent.name, parent.name) == (PACKAGE, COPIES) else ""


def advice(diff: str, entry: str) -> list[str]:
    """What the user has to do for the copies in a diff to count; nothing where it has none."""
    changed = (line.partition("/")[2].strip() for line in diff.splitlines() if line.startswith("+++ b/"))
    names = sorted(PurePosixPath(path).stem for path in changed if root_of(path))
    if not names:
        return []
    return [
        f"Copies of {', '.join(names)} were changed. They count when `import {PACKAGE}` comes before the libraries, or "
        f"when the script is started with `python -m {PACKAGE} {PurePosixPath(entry).name}`."
    ]


def _is_free(folder: Path) -> bool:
    """Whether there is nothing yet, or our own."""
    init = folder / "__init__.py"
    if not folder.exists():
        return True
    return init.is_file() and init.read_text(encoding="utf-8", errors="replace").startswith(MARK)


def _may_be_copied(source: LibrarySource) -> bool:
    names = (source.library, source.version)
    return bool(_NAME.fullmatch(source.module)) and all(_VERSION.fullmatch(each) for each in names)


def _copy(source: LibrarySource) -> str:
    end = "\r\n" if "\r\n" in source.text else "\n"
    text = source.text if source.text.endswith("\n") else source.text + end
    return f"{text}# Ratchet: a copy of {source.module} from {source.library} {source.version}{end}"


def _mapped(seen: Observation, places: Mapping[str, str]) -> Observation:
    """With the copies' paths in the place of the libraries' files, as if they were the target's own."""
    told = seen.model_dump(by_alias=True)

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if part.get("third_party") is True and part.get("file") in places:
                part["file"], part["third_party"] = places[part["file"]], False
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    sources = told.pop("sources")
    walk(told)
    mapped = Observation.model_validate({**told, "sources": sources})
    called = mapped.callable
    if called.is_module and not called.third_party and not mapped.callable.outermost:
        place = {name: getattr(called, name) for name in ("module", "file", "line", "line_end", "third_party")}
        mapped.callable.outermost.append(OutermostClass.model_validate({"class": called.name, **place, "path": ""}))
    return mapped
