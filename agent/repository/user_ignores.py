"""What the user tells git to ignore everywhere, so that a private note or key does not end up in a branch.

Reads two files of the user's as text; runs nothing, and takes nothing else from the user's configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_SETTING = re.compile(rb"^\s*excludesfile\s*=\s*\"?([^\"\n;#]+?)\"?\s*$", re.IGNORECASE | re.MULTILINE)
_CORE = re.compile(rb"^\[core\]((?:(?!^\[).*\n?)*)", re.IGNORECASE | re.MULTILINE)


def user_ignores(environment: Mapping[str, str] = os.environ) -> bytes:
    """The lines of the user's own ignore file; nothing where there is none or it cannot be read."""
    home = Path(environment.get("HOME") or "/nonexistent")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    named = config / "ignore"
    for file in (config / "config", home / ".gitconfig"):
        for section in _CORE.findall(_read(file)):
            for value in _SETTING.findall(section):
                text = os.fsdecode(value)
                named = home / text[2:] if text.startswith("~/") else Path(text)
    lines = _read(named)
    return lines if not lines or lines.endswith(b"\n") else lines + b"\n"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""
