"""What a contained command must be given to use one GPU: device nodes or the engine's own request, groups, variables.

Never more than one GPU. Variables of the agent's environment do not choose another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox.devices.gpus import HIDING_VARIABLES, Gpu, visible_environment

# whether they were there before or the engine makes them
_OF_NVIDIA = tuple(Path("/dev") / name for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"))


@dataclass(frozen=True)
class Access:
    """To one GPU, or to none."""

    nodes: tuple[Path, ...] = ()
    """The device nodes to pass in."""
    seen: tuple[Path, ...] = ()
    """The device nodes that a command may then see: `nodes`, or what the engine passes in for `requests`."""
    groups: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    requests: tuple[dict[str, Any], ...] = ()
    """Docker's `DeviceRequests`, when the engine itself is to pass the GPU in."""

    def merged(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables that a command was given, with those that choose a GPU replaced."""
        if not self.environment:
            return dict(given)
        return {name: value for name, value in given.items() if name not in HIDING_VARIABLES} | dict(self.environment)


def by_nodes(gpu: Gpu | None) -> Access:
    """By its device nodes alone: enough where the driver's libraries are seen, and always for AMD."""
    if gpu is None:
        return Access()
    return Access(gpu.devices, gpu.devices, gpu.groups, visible_environment(gpu, alone=True))


def by_variables(gpu: Gpu | None) -> Access:
    """By asking only: for a command that sees every device node anyway. Without a GPU what it was given stays."""
    return Access() if gpu is None else Access(groups=gpu.groups, environment=visible_environment(gpu))


def by_engine(gpu: Gpu | None, info: Mapping[str, Any], root: Path = Path("/")) -> Access:
    """For an image, which lacks NVIDIA's driver libraries: they must match this machine's kernel, and the engine adds
    them when it is asked for the GPU. AMD's libraries are the image's own, so its device nodes are enough.

    `info` is what the engine tells of itself; from API 1.50 on it lists its CDI devices. `root` is another `/`.
    """
    given = by_nodes(gpu)
    if gpu is None or gpu.vendor == "amd":
        return given
    name = f"nvidia.com/gpu={gpu.index}"
    if any(device.get("ID") == name for device in info.get("DiscoveredDevices") or ()):
        request: dict[str, Any] = {"Driver": "cdi", "DeviceIDs": [name]}
    else:
        request = {"Driver": "nvidia", "DeviceIDs": [str(gpu.index)], "Capabilities": [["gpu"]]}
    return replace(given, nodes=(), seen=_seen_by_engine(gpu, root), requests=(request,))


def _seen_by_engine(gpu: Gpu, root: Path) -> tuple[Path, ...]:
    """Every device node that an engine may pass in when it is asked for this NVIDIA GPU by name.

    With CDI the card's nodes for graphics come along, with NVIDIA's own runtime those for display and for slices of a
    GPU ("Container Device Interface" in NVIDIA's toolkit documentation).
    """
    drm = [
        name for name in _names(root / "sys/bus/pci/devices" / gpu.pci / "drm") if name.startswith(("card", "renderD"))
    ]
    slices = [Path("/dev/nvidia-caps") / name for name in _names(root / "dev/nvidia-caps")]
    return tuple(dict.fromkeys((*gpu.devices, *(Path("/dev/dri") / name for name in drm), *_OF_NVIDIA, *slices)))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
