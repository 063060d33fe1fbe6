"""All attacks, and which provider promises to withstand which of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sandbox.contract import ProcessEnded, Sandbox
from sandbox.errors import SandboxError
from sandbox.guest.wire import BadFrame, ChannelClosed
from tests.sandbox.attacks import bounds, files, neighbours, network, rights
from tests.sandbox.attacks.bench import Bench, Check, Unanswered

ALL: tuple[Check, ...] = (*network.CHECKS, *files.CHECKS, *neighbours.CHECKS, *rights.CHECKS, *bounds.CHECKS)

# "always", "never", or when `Sandbox.promises()` says so: the field that is true then, or with "not" before it, false.
When = Literal["always", "never", "separate_users", "not separate_users", "kernel_limits"]
PROVIDERS = ("docker", "bwrap", "local")
# Which provider is held to what. A check that a provider is not held to may still hold, by luck or by the machine.
HELD_TO: Mapping[str, tuple[When, When, When]] = {
    "no network": ("always", "always", "never"),
    "no way to the hypervisor": ("never", "never", "never"),  # engines from 23 on filter it
    "no host files": ("always", "always", "never"),
    "nothing written": ("always", "always", "never"),
    "own processes": ("always", "always", "never"),
    "own shared memory": ("always", "always", "never"),
    "own keys": ("always", "always", "separate_users"),
    "own control groups": ("always", "always", "never"),
    "clean environment": ("always", "always", "always"),
    "no rights": ("always", "always", "never"),
    "no new rights": ("always", "always", "always"),
    "system calls filtered": ("always", "never", "never"),
    # with a user of its own bubblewrap cannot also forbid it further namespaces
    "no namespaces of its own": ("always", "not separate_users", "never"),
    "usual devices": ("always", "always", "never"),
    "kernel settings": ("always", "always", "never"),
    "plain files": ("always", "always", "always"),
    "process limit": ("always", "always", "always"),
    "process limit by the kernel": ("always", "kernel_limits", "kernel_limits"),
    "memory limit": ("always", "always", "always"),
    "memory limit on everything": ("always", "kernel_limits", "kernel_limits"),
    "disk limit": ("always", "always", "always"),
    "floor of the disk": ("always", "always", "always"),
    "file size limit": ("always", "always", "always"),
    "output limit": ("always", "always", "always"),
    "bounded scratch": ("always", "always", "never"),
    "no core dumps": ("always", "always", "always"),
    "ends whole tree": ("always", "always", "separate_users"),
    "nothing left behind": ("always", "always", "always"),
}


class NotTried(Exception):
    """An attack could not be made: nothing was seen against the sandbox, and nothing for it."""


def promised(sandbox: Sandbox, promise: str) -> bool:
    """Whether this sandbox is held to it on this machine. Raises: SandboxError."""
    when = HELD_TO[promise][PROVIDERS.index(sandbox.name)]
    if when in ("always", "never"):
        return when == "always"
    told = sandbox.promises()
    return not told.separate_users if when == "not separate_users" else bool(getattr(told, when))


def tried(check: Check, bench: Bench) -> str | None:
    """What was seen against it, promised or not; None when it holds. Raises: NotTried."""
    try:
        return str(seen) if (seen := check.run(bench)) else None
    except (Unanswered, SandboxError, ProcessEnded, ChannelClosed, BadFrame, TimeoutError, OSError) as error:
        raise NotTried(str(error) or type(error).__name__) from error
