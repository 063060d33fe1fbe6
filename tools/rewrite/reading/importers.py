"""Who imports a file of the target, and how: as a module of a package, or as one that lies on the path itself.

A line that imports a file beside it serves one of the two. It goes by names and places; what is imported by other means
(`importlib`, a changed `sys.path`), and without a package from another folder, is not seen.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath


@lru_cache(maxsize=256)
def other_way(tree: Path, path: str, in_package: bool) -> str:
    """The first file, by name, that imports the one at `path` in the other way; empty when none does."""
    module = PurePosixPath(path).with_suffix("")  # of a package, its folder
    module = module.parent if module.name == "__init__" else module
    for name in _files_that_import(tree, module.name):
        try:
            nodes = list(ast.walk(ast.parse((tree / name).read_bytes())))
        except (SyntaxError, ValueError, OSError):
            continue
        for node in nodes:
            if _as_package(tree, node, PurePosixPath(name), module) is (not in_package):
                return name
    return ""


def _files_that_import(tree: Path, word: str) -> Iterator[str]:
    """Files that name it in an import, perhaps: parsing takes a hundred times as long as looking."""
    name_it = rb"\b%s\b" % re.escape(word).encode()
    said = re.compile(rb"\b(?:from|import)\b[^\n]*%s|\bimport\s*\([^)]*%s" % (name_it, name_it))
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            place = Path(folder) / name
            if name.endswith(".py") and place.is_file() and said.search(place.read_bytes()):
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
    if len(parts) == 1:  # of a file elsewhere that may be another module, of a library say
        return False if file.parent == module.parent and name not in sys.stdlib_module_names else None
    beside = file.parent.joinpath(*parts)
    return None if beside != module and any((tree / place).exists() for place in (f"{beside}.py", beside)) else True
