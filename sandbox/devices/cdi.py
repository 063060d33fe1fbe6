"""The GPUs that a container engine can hand out by name: what the specification files of CDI call them.

It is no YAML reader: of YAML it reads what the generators write, block style with one key a line, and says
in a note which file it did not understand. A dependency for that would be large, and to leave YAML out would leave out
NVIDIA, whose toolkit writes nothing else by default; AMD's writes JSON ("Running Workloads", AMD Container Toolkit).
The form is that of SPEC.md in cncf-tags/container-device-interface.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.devices import sysfs

FOLDERS = ("etc/cdi", "var/run/cdi")  # where Docker and Podman look unless they are told otherwise
KINDS = ("amd.com/gpu", "nvidia.com/gpu")
_KIND = r"""(?P<quote>["']?)(?P<value>[\w.-]+/[\w.-]+)(?P=quote)[ ]*(?:#.*)?$"""
_NAME = r"""(?P<quote>["']?)(?P<value>\w[\w.:-]*)(?P=quote)[ ]*(?:#.*)?"""
_UNKNOWN_STYLE = "it is YAML in another style than the generators write"


@dataclass(frozen=True)
class Cdi:
    """The names of the devices of each kind that is there: `--device <kind>=<name>` asks an engine for one."""

    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def cdi_devices(root: Path = Path("/")) -> Cdi:
    """AMD's and NVIDIA's devices of all specification files below `root`, which is another `/` for tests."""
    names: dict[str, set[str]] = {}
    notes = []
    for path in (path for folder in FOLDERS for path in sorted((root / folder).glob("*"))):
        if path.suffix not in (".json", ".yaml"):  # engines pass over other files too
            continue
        try:
            content = sysfs.read(path)
            kind, found = _from_json(content) if path.suffix == ".json" else _from_yaml(content)
        except (OSError, ValueError, RecursionError) as error:
            notes.append(f"{path} was not read: {error}")
            continue
        if kind in KINDS:
            names.setdefault(kind, set()).update(found)
    return Cdi({kind: tuple(sorted(found, key=_by_number)) for kind, found in sorted(names.items())}, tuple(notes))


def _by_number(name: str) -> tuple[bool, int, str]:
    number = re.fullmatch(r"[0-9]{1,9}", name)
    return (number is None, int(name) if number else 0, name)


def _from_json(content: str) -> tuple[str, list[str]]:
    """Raises: ValueError."""
    match json.loads(content):
        case {"kind": str(kind), "devices": list(devices)}:
            names = [device.get("name") for device in devices if isinstance(device, dict)]
            return kind, [name for name in names if isinstance(name, str)]
    raise ValueError("it has no kind and no list of devices")


def _from_yaml(content: str) -> tuple[str, list[str]]:
    """The `kind`, and the `name` that stands at the level of each item of `devices`. Raises: ValueError."""
    kind = re.search(rf"^kind:[ ]*{_KIND}", content, re.MULTILINE)
    block = re.search(r"^devices:[ ]*(?:#.*)?\n((?:[ #-].*\n|\n)*)", content + "\n", re.MULTILINE)
    if kind is None or block is None:
        raise ValueError(_UNKNOWN_STYLE)
    names, items = [], 0
    dash = level = -1  # the columns of the dashes of the list, and of the keys of the item that is being read
    for line in block[1].splitlines():
        keys = line.lstrip(" ")
        column = len(line) - len(keys)
        if keys.startswith("- ") and dash in (-1, column):
            dash, items = column, items + 1
            keys = keys[1:].lstrip(" ")
            column = level = len(line) - len(keys)
        if column == level and (name := re.fullmatch(rf"name:[ ]*{_NAME}", keys)):
            names.append(name["value"])
    if not items or len(names) != items:
        raise ValueError(_UNKNOWN_STYLE)
    return kind["value"], names
