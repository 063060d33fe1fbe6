"""Who imports a file of the target, and how: as a module of a package, or as one that lies on the path itself.

A line that imports a file beside it serves one of the two. It goes by names and places; what is imported by other means
(`importlib`, a changed `sys.path`) is not seen.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath


@lru_cache(maxsize=256)
def other_way(tree: Path, path: str, in_package: bool) -> str:
    """The first file, by name, that imports the one at `path` in the other way; empty when none does."""
    module = PurePosixPath(path).with_suffix("")
    module = module.parent if module.name == "__init__" else module
    for name in _files_that_say(tree, module.name):
        try:
            nodes = list(ast.walk(ast.parse((tree / name).read_bytes())))
        except (SyntaxError, ValueError, OSError):
            continue
        for node in nodes:
            if _as_package(tree, node, PurePosixPath(name), module) is (not in_package):
                return name
    return ""


def _files_that_say(tree: Path, word: str) -> Iterator[str]:
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            place = Path(folder) / name
            if name.endswith(".py") and place.is_file() and word.encode() in place.read_bytes():
                yield place.relative_to(tree).as_posix()


def _as_package(tree: Path, node: ast.AST, file: PurePosixPath, module: PurePosixPath) -> bool | None:
    """Whether a node of this file imports the module as part of a package; None when it does not import it."""
    if isinstance(node, ast.Import):
        found = [_names_it(tree, alias.name, file, module) for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level:
        above = (file.parent, *file.parent.parents)
        base = above[node.level - 1] if node.level <= len(above) else file
        base = base.joinpath(*(node.module or "").split(".")) if node.module else base
        found = [True if module in (base, base / alias.name) else None for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        found = [_names_it(tree, name, file, module) for name in names]
    else:
        return None
    return next((each for each in found if each is not None), None)


def _names_it(tree: Path, name: str, file: PurePosixPath, module: PurePosixPath) -> bool | None:
    parts = tuple(name.split("."))
    if module.parts[-len(parts) :] != parts:
        return None
    beside = file.parent.joinpath(*parts)
    if beside != module and any((tree / place).exists() for place in (f"{beside}.py", beside)):
        return None  # what lies beside a script comes first
    return len(parts) > 1
