"""What no candidate may change, and how much it may change.

Refuses by name and size only, which is a tripwire: that a change does no harm is for the sandbox and the judge.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_FOLDERS_OF_OTHERS = {".git", ".github", ".hg", ".svn", ".ratchet", "__pycache__"}
_FILES_OF_GIT = {".gitattributes", ".gitmodules", ".gitignore", ".mailmap"}
_RUN_AT_START = {"sitecustomize.py", "usercustomize.py"}  # Python imports these before the target
_COMPILED = {".so", ".pyc", ".pyd", ".pyo", ".o", ".a", ".dll", ".hsaco", ".cubin", ".egg", ".whl", ".zip"}
_NOT_TO_HIDE = sys.stdlib_module_names | {"torch", "triton", "numpy", "transformers", "aiter", "functorch"}


@dataclass(frozen=True)
class PatchRules:
    """What a diff may do. `protected` gives the reason why a path may not be touched, or None."""

    protected: Callable[[str], str | None] = field(default=lambda path: None)
    max_diff_bytes: int = 8 << 20
    max_files: int = 200
    max_file_bytes: int = 2 << 20
    max_binary_bytes: int = 64 << 10


def never_allowed(path: str) -> str | None:
    """Why no candidate may touch this path, whatever the caller's rules say."""
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        return "not a path inside the tree"
    if "\\" in path or any(unicodedata.category(sign).startswith("C") for sign in path):
        return "a file name with backslashes or invisible characters"
    *folders, name = path.lower().split("/")
    for part in (*folders, name):
        if part in _FOLDERS_OF_OTHERS or re.fullmatch(r"\.git[ .]*|git~\d", part):
            return "it belongs to version control, to a service or to a tool, not to the program"
    if name in _FILES_OF_GIT:
        return "it tells git what to do with other files"
    if name in _RUN_AT_START or name.endswith(".pth"):
        return "Python would run it before the program"
    if PurePosixPath(name).suffix in _COMPILED:
        return "compiled or packed code, which nobody can review"
    return None


def hides_a_module(path: str) -> str | None:
    """The folder from which a new file of this path would be imported instead of a module that everybody uses.

    That is so where the folder is on `sys.path`, which a folder with an `__init__.py` is not; the caller looks.
    """
    parts = PurePosixPath(path).parts
    if parts[-1] == "__init__.py":
        parts = parts[:-1]
    name = parts[-1].removesuffix(".py") if parts else ""
    return "/".join(parts[:-1]) if name in _NOT_TO_HIDE else None
