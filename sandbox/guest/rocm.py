"""Versions of the ROCm installation that the target runs on, read from its files.

Runs no program. What is not there, as beside wheels that bring ROCm's libraries along, is None.
"""

from __future__ import annotations

import glob
import os
import re


def versions(root=None):
    """{"rocm", "llvm", "hipblaslt"}; `root` is the installation, $ROCM_PATH or /opt/rocm."""
    root = root or os.environ.get("ROCM_PATH") or "/opt/rocm"
    return {
        "rocm": _first_line(os.path.join(root, ".info", "version")),
        "llvm": _last(root, "lib/llvm/lib/clang/*", r"(\d[\d.]*)$") or _last(root, "llvm/lib/clang/*", r"(\d[\d.]*)$"),
        "hipblaslt": _last(root, "lib/libhipblaslt.so.*", r"\.so\.(\d[\d.]*)$"),
    }


def _first_line(path):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip() or None
    except OSError:
        return None


def _last(root, pattern, number):
    """The most precise number that the names of the files tell."""
    names = [os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(root), pattern))]
    found = [match[1] for match in (re.search(number, name) for name in names) if match]
    return max(found, key=len, default=None)
