"""Copy a kernel file, and the Python files that it may import, to where a sandbox can read them.

Only Python files, no links, and with an upper bound.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.errors import KernelNotCompiled

MOST_FILES, MOST_BYTES = 4000, 64 << 20
_NEVER = {"__pycache__", "node_modules", "site-packages", "build", "dist"}


@dataclass(frozen=True)
class Copied:
    root: Path
    file: Path
    launch: Path | None


def copy(file: Path, launch: Path | None, into: Path) -> Copied:
    """The file with those beside it, its package where it is part of one, and the tree that it shares with `launch`.

    Raises: KernelNotCompiled when that is too much, OSError.
    """
    file = file.resolve()
    top = package_top(file)
    if launch is None:
        root = top.parent
        wanted = [*root.glob("*.py"), *(_below(top) if top.is_dir() else [])]
    else:
        launch = launch.resolve()
        root = Path(os.path.commonpath([top.parent, launch.parent]))
        wanted = list(_below(root))
    found = sorted({path for path in wanted if path.is_file() and not path.is_symlink()} | {file})
    size = sum(path.stat().st_size for path in found)
    if len(found) > MOST_FILES or size > MOST_BYTES:
        raise KernelNotCompiled(
            f"{root} holds more Python than is copied for a kernel ({len(found)} files, {size >> 20} MiB).",
            hint="Put the kernel and what it imports in their own folder.",
        )
    for path in found:
        to = into / path.relative_to(root)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
    return Copied(into, into / file.relative_to(root), into / launch.relative_to(root) if launch else None)


def package_top(file: Path) -> Path:
    """The folder of the outermost package that the file is part of, or the file itself."""
    top = file
    while (top.parent / "__init__.py").exists() and top.parent != top.parent.parent:
        top = top.parent
    return top


def _below(folder: Path) -> Iterator[Path]:
    """Python files, hidden folders and installed packages apart; stops when there are too many."""
    seen = 0
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in _NEVER and not name.startswith(".") and not (Path(place) / name / "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py"):
                seen += 1
                yield Path(place) / name
        if seen > MOST_FILES:
            return
