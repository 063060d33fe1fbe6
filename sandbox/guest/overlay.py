"""Changed copies of library modules: install those of a tree, and tell the source of those that could be copied."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys

from .workload import guarded

PACKAGE = "optimized"
MARK = "# Ratchet: optimized."
MOST_MODULES, MOST_BYTES = 6, 400 << 10


def install(tree, entry):
    """What a user does by `import optimized`, where a tree has that package of ours beside its entry."""
    folder = os.path.join(os.path.dirname(os.path.join(tree, entry)), PACKAGE)
    try:
        with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
            ours = file.readline().startswith(MARK)
    except (OSError, UnicodeDecodeError):
        return
    if ours:
        with guarded("entry_raised", tree):
            importlib.import_module(PACKAGE)


def sources(names):
    """[{"module", "file", "library", "version", "text"}] of library modules, in this order, where they are known."""
    libraries = importlib.metadata.packages_distributions()
    found = []
    for name in dict.fromkeys(names):
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        library = next(iter(libraries.get(name.partition(".")[0], ())), None)
        if len(found) == MOST_MODULES or library is None or not file.endswith(".py") or file.endswith("__init__.py"):
            continue
        try:
            with open(file, encoding="utf-8", newline="") as source:
                text = source.read(MOST_BYTES + 1)
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) <= MOST_BYTES:
            version = importlib.metadata.version(library)
            real = os.path.realpath(file)
            found.append({"module": name, "file": real, "library": library, "version": version, "text": text})
    return found
