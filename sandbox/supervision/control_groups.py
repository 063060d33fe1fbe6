"""The control groups of one command: one to freeze it by, one to hold it on its CPUs.

Refuses to choose whether they are wanted. Raises Unusable with the feature's name when the machine has none for us.
"""

from __future__ import annotations

from sandbox.errors import Unusable
from sandbox.kernel import cgroup, freezer
from sandbox.kernel.freezer import CgroupFreezer, Freezer


def freezer_for(name: str, *, groups: bool) -> Freezer:
    """Raises: Unusable."""
    try:
        return freezer.choose(name, groups=groups)
    except OSError as error:
        raise Unusable("groups", f"no control group can be made: {error.strerror or error}") from error


def cpuset_for(name: str, chosen: Freezer, cpus: tuple[int, ...] | None) -> cgroup.CpuSet:
    """A CPU set for a command, holding `cpus`, in whichever hierarchy has the controller. Raises: Unusable."""
    cpuset = chosen.group.cpuset if isinstance(chosen, CgroupFreezer) else None
    home = cgroup.cpuset_home()
    try:
        if cpuset is None and home is not None:
            cpuset = cgroup.CpuSet.create(home / name)
        if cpuset is not None and cpus is not None:
            cpuset.allow(cpus)
    except OSError as error:
        if cpuset is not None:
            cpuset.close()
        raise Unusable("cpusets", f"no CPU set can be made: {error.strerror or error}") from error
    if cpuset is None:
        raise Unusable("cpusets", "no cpuset controller is there for us")
    return cpuset
