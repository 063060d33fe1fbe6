"""What a contained command must be given to use one GPU: device nodes or the engine's own request, groups, variables.

Refuses to give more than one GPU, and to let variables of the agent's environment choose another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.devices.gpus import HIDING_VARIABLES, Gpu, visible_environment


@dataclass(frozen=True)
class Access:
    """To one GPU, or to none."""

    nodes: tuple[Path, ...] = ()
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
    return Access(gpu.devices, gpu.groups, visible_environment(gpu, alone=True))


def by_variables(gpu: Gpu | None) -> Access:
    """By asking only: for a command that sees every device node anyway. Without a GPU what it was given stays."""
    return Access() if gpu is None else Access(groups=gpu.groups, environment=visible_environment(gpu))


def by_engine(gpu: Gpu | None, info: Mapping[str, Any], cdi_names: frozenset[str]) -> Access:
    """For an image, which does not have the driver's libraries that belong to this machine's kernel.

    `info` is what the engine tells of itself, `cdi_names` are the devices that its CDI specifications define. AMD's
    libraries are the image's own, so that its device nodes serve where the engine knows no CDI.
    """
    if gpu is None:
        return Access()
    plain, name = by_nodes(gpu), f"{'amd.com' if gpu.vendor == 'amd' else 'nvidia.com'}/gpu={gpu.index}"
    if info.get("CDISpecDirs") and name in cdi_names:
        return Access((), plain.groups, plain.environment, ({"Driver": "cdi", "DeviceIDs": [name]},))
    if gpu.vendor == "amd":
        return plain
    request = {"Driver": "nvidia", "DeviceIDs": [str(gpu.index)], "Capabilities": [["gpu"]]}
    return Access((), plain.groups, plain.environment, (request,))
