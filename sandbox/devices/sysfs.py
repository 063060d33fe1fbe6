"""Read the small files of the kernel, which may vanish, be closed to us or be garbled between two looks.

Only `read` raises: what cannot be read is None or empty.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path

_MOST_CHARACTERS = 1 << 20  # sysfs gives a page at most; a file put there instead may have no end
_NUMBER = re.compile(r"^[ \t]*(\S+)[ \t]+([0-9]{1,20})[ \t]*$", re.MULTILINE)  # of 64 bits at most
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read(path: Path) -> str:
    """Raises: OSError."""
    with path.open(errors="replace") as file:
        return file.read(_MOST_CHARACTERS)


def text(path: Path) -> str | None:
    """Without the white space around it; None when it cannot be read, or is empty."""
    try:
        return read(path).strip() or None
    except OSError:
        return None


def number(content: str | None) -> float | None:
    """None for what is not a finite one."""
    try:
        found = float(content) if content is not None else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) else None


def numbers(content: str) -> dict[str, int]:
    """The `name number` lines of a properties file of KFD; other lines are passed over."""
    return {name: int(value) for name, value in _NUMBER.findall(content)}


def fields(content: str, separator: str) -> dict[str, str]:
    """The `name<separator>value` lines of a file; of a name that comes again the first value."""
    pairs = [line.partition(separator) for line in reversed(content.splitlines())]
    return {name.strip(): value.strip() for name, found, value in pairs if found}


def numbered(folder: Path, prefix: str = "") -> list[tuple[int, Path]]:
    """What lies in a folder under a name that is `prefix` and a number, by number: 9 comes before 10."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    tails = ((name.removeprefix(prefix), name) for name in names if name.startswith(prefix))
    return sorted((int(tail), folder / name) for tail, name in tails if tail.isascii() and tail.isdigit())


def properties(folder: Path) -> list[dict[str, int]]:
    """The properties files of the numbered folders in a folder, such as the memory banks of a node."""
    return [numbers(text(path / "properties") or "") for _, path in numbered(folder)]


def exists(root: Path, device: Path) -> bool:
    """Whether a device node of the machine below `root` is there; False when a folder on the way is closed."""
    return os.path.exists(root / device.relative_to("/"))


def groups(root: Path, devices: Iterable[Path]) -> tuple[int, ...]:
    """The groups with the right to read and write one of these nodes, as numbers: a container has other names."""
    found = set()
    for device in devices:
        try:
            facts = (root / device.relative_to("/")).stat()
        except OSError:
            continue
        if facts.st_mode & 0o060 == 0o060 and facts.st_gid != 0:
            found.add(facts.st_gid)
    return tuple(sorted(found))
