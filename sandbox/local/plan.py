"""What the local provider uses of this kernel, and what it may therefore promise.

Refuses to guess from versions or settings: a plan starts with the most and gives up what trying shows not to work,
each with a note in plain words.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal

from sandbox.contract import Promises
from sandbox.errors import Unusable
from sandbox.supervision import control_groups
from sandbox.supervision.control_groups import EVERY_KIND, Kind

Feature = Literal["namespaces", "pid namespace", "groups", "cpusets", "limits", "users"]

_NOT_CONTAINED = (
    "local is not containment: the code runs as an ordinary program, can read what its user can read, and shares "
    "/tmp, /dev/shm and the devices with everything else"
)
_WITHOUT: dict[str, str] = {
    "namespaces": "commands can reach the network and see other processes, the agent's among them",
    "pid namespace": "commands can see other processes, the agent's among them",
    **control_groups.WITHOUT,
    "users": "commands run under the agent's own user id and can read and write what it can",
}
_ESCAPABLE = "a process that kills its own supervisor could outlive its command"


@dataclass(frozen=True)
class Plan:
    """The isolation that every command of one sandbox gets; `lacks` says what it does without, and why."""

    namespaces: Literal["direct", "user", "none"]  # made as root, inside a user namespace, or not at all
    pid_namespace: bool = True
    groups: bool = True
    cpusets: bool = True
    limits: bool = True  # by the kernel, on memory and processes
    users: bool = True
    lacks: dict[Feature, str] = field(default_factory=dict)

    @classmethod
    def most(cls, without: frozenset[Feature] = frozenset()) -> Plan:
        """The best that any machine could give to this user, less the features named."""
        root = os.geteuid() == 0
        plan = cls("direct" if root else "user")
        for feature in sorted(without):
            plan = plan.lacking(feature, "switched off")
        return plan if root or not plan.users else plan.lacking("users", "only root can use others")

    @property
    def control_groups(self) -> frozenset[Kind]:
        return frozenset(kind for kind in EVERY_KIND if getattr(self, kind))

    def lacking(self, feature: Feature, why: str) -> Plan:
        lacks = {**self.lacks, feature: why}
        if feature == "namespaces":
            return replace(self, namespaces="none", pid_namespace=False, lacks=lacks)
        changed = {
            "pid namespace": replace(self, pid_namespace=False, lacks=lacks),
            "groups": replace(self, groups=False, lacks=lacks),
            "cpusets": replace(self, cpusets=False, lacks=lacks),
            "limits": replace(self, limits=False, lacks=lacks),
            "users": replace(self, users=False, lacks=lacks),
        }
        return changed[feature]

    def after(self, failure: Unusable) -> Plan | None:
        """The next plan to try; None when nothing is left to give up for this failure."""
        stage, why = failure.stage, failure.message
        if stage == "namespaces" and self.namespaces == "direct" and not self.users:
            return replace(self, namespaces="user")  # a user namespace knows one user id, so not beside `users`
        if stage == "namespaces" and self.namespaces != "none":
            return self.lacking("namespaces", why)
        if stage == "pid namespace" and self.pid_namespace:
            return self.lacking("pid namespace", why)
        if stage in ("group", "limits") and self.limits:
            return self.lacking("limits", why)
        if stage in ("group", "cpusets") and self.cpusets:
            return self.lacking("cpusets", why)
        if stage in ("group", "groups") and self.groups:
            return self.lacking("groups", why)
        if stage in ("users", "user", "folder", "exec") and self.users:
            return self.lacking("users", why)
        return None

    def promises(self) -> Promises:
        # a control group alone holds nobody who may write to it, and the same user may
        ends_whole_tree = self.pid_namespace or self.users
        notes = [_NOT_CONTAINED, *(f"{_WITHOUT[feature]} ({why})" for feature, why in self.lacks.items())]
        return Promises(
            contained=False,
            no_network=self.namespaces != "none",
            separate_users=self.users,
            ends_whole_tree=ends_whole_tree,
            enforced_cpus=self.cpusets,
            kernel_limits=self.limits,
            notes=tuple(notes if ends_whole_tree else [*notes, _ESCAPABLE]),
        )
