# Ratchet: optimized. Changed copies of library modules, and how they come into the place of the originals.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Import this before the libraries that it changes, or start your script with it:

    import optimized
    python -m optimized bench.py

Each file in `overlay/` is a copy of one module of one version of a library, which its last line names. Any other
version is refused, because what was changed may not fit there. Take this folder away, and everything is as it was.
"""

import importlib.abc
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path

OVERLAY = Path(__file__).resolve().parent / "overlay"
_ORIGIN = re.compile(r"# Ratchet: a copy of (\S+) from (\S+) (\S+)")


class Overlay(importlib.abc.MetaPathFinder):
    """Finds the copies by the names of the modules that they stand in for."""

    def __init__(self, copies):
        self.copies = copies  # name of a module -> file

    def find_spec(self, name, path=None, target=None):
        file = self.copies.get(name)
        return None if file is None else importlib.util.spec_from_file_location(name, file)


def read(folder):
    """{name of a module: file}. Raises: ImportError for a copy of another version than the one that is installed."""
    copies = {}
    for file in sorted(folder.glob("*.py")):
        origin = _ORIGIN.match(file.read_text(encoding="utf-8").rstrip().rpartition("\n")[2])
        if origin is None:
            raise ImportError(f"{file} does not say in its last line what it is a copy of")
        module, library, version = origin.groups()
        try:
            installed = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            installed = "none"
        if installed != version:
            raise ImportError(
                f"{file} was made of {library} {version}, and {installed} is installed: "
                "install that version, make the copy again, or import your libraries without it"
            )
        copies[module] = str(file)
    return copies


def install(folder):
    """Put the copies of a folder in the place of the originals. Raises: ImportError."""
    copies = read(folder)
    late = [name for name in copies if name in sys.modules]
    if late:
        raise ImportError(f"{late[0]} was imported already: import optimized before it")
    sys.meta_path.insert(0, Overlay(copies))


install(OVERLAY)
