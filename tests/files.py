"""Folders to test on, from their contents."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

NOBODY = 65534


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Files by their path below the folder; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def open_to_all(folder: Path) -> None:
    """Let other users reach a folder of pytest's."""
    top = Path(tempfile.gettempdir()).resolve()
    for each in (folder, *folder.parents):
        if top in each.parents:
            each.chmod(0o755)


def give(folder: Path, user: int = NOBODY) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


@contextlib.contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Root reads and writes everything; this gives the folder to a user that may not, and becomes that user."""
    if os.geteuid() != 0:
        yield
        return
    open_to_all(folder)
    give(folder)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextlib.contextmanager
def folder_open_to_all() -> Iterator[Path]:
    """A folder of its own that every user may enter, removed in the end; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp(prefix="ratchet-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
