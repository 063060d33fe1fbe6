"""What a contained command must be given to use one GPU: device nodes or the engine's own request, groups, variables.

Does not give more than one GPU, or let variables of the agent's environment choose another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
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


def by_engine(gpu: Gpu | None, info: Mapping[str, Any], cdi_names: frozenset[str], root: Path = Path("/")) -> Access:
    """For an image, which does not have the driver's libraries that belong to this machine's kernel.

    `info` is what the engine tells of itself, `cdi_names` are the devices that its CDI specifications define. AMD's
    libraries are the image's own, so that its device nodes serve where the engine knows no CDI. `root` is another `/`,
    for tests.
    """
    if gpu is None:
        return Access()
    plain, name = by_nodes(gpu), f"{'amd.com' if gpu.vendor == 'amd' else 'nvidia.com'}/gpu={gpu.index}"
    if info.get("CDISpecDirs") and name in cdi_names:
        by_cdi = {"Driver": "cdi", "DeviceIDs": [name]}
        return Access((), seen_by_engine(gpu, root), plain.groups, plain.environment, (by_cdi,))
    if gpu.vendor == "amd":
        return plain
    request = {"Driver": "nvidia", "DeviceIDs": [str(gpu.index)], "Capabilities": [["gpu"]]}
    return Access((), seen_by_engine(gpu, root), plain.groups, plain.environment, (request,))


def seen_by_engine(gpu: Gpu, root: Path = Path("/")) -> tuple[Path, ...]:
    """Every device node that an engine may pass in when it is asked for this GPU by name.

    The card's nodes for graphics come along with both vendors' CDI specifications, and NVIDIA's for display and for
    slices of a GPU with its own runtime ("Container Device Interface" in AMD's and NVIDIA's toolkit documentation).
    """
    known = (*gpu.devices, *_drm_nodes(gpu, root))
    if gpu.vendor == "amd":
        return tuple(dict.fromkeys(known))
    try:
        slices = sorted(os.listdir(root / "dev/nvidia-caps"))
    except OSError:
        slices = []
    return tuple(dict.fromkeys((*known, *_OF_NVIDIA, *(Path("/dev/nvidia-caps") / name for name in slices))))


def _drm_nodes(gpu: Gpu, root: Path) -> list[Path]:
    device = f"class/drm/renderD{gpu.render_minor}/device" if gpu.vendor == "amd" else f"bus/pci/devices/{gpu.pci}"
    try:
        names = sorted(os.listdir(root / "sys" / device / "drm"))
    except OSError:
        return []
    return [Path("/dev/dri") / name for name in names if name.startswith(("card", "renderD"))]
