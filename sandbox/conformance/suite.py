"""Put a sandbox through the checks, and say of each whether it is promised, and whether it held.

Refuses to pass over a check in silence: what a provider does not promise is told as that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.conformance import bounds, files, neighbours, network, rights
from sandbox.conformance.bench import Bench, Check, Promise, Unanswered
from sandbox.contract import ProcessEnded, Sandbox
from sandbox.errors import SandboxError
from sandbox.guest.wire import BadFrame, ChannelClosed

ALL: tuple[Check, ...] = (*network.CHECKS, *files.CHECKS, *neighbours.CHECKS, *rights.CHECKS, *bounds.CHECKS)

# "always", "never", or when `Sandbox.promises()` says so: the field that is true then, or with "not" before it, false.
When = Literal[
    "always", "never", "no_network", "separate_users", "not separate_users", "ends_whole_tree", "kernel_limits"
]
PROVIDERS = ("docker", "bwrap", "local")
# Which provider is held to what. A check that a provider is not held to may still hold, by luck or by the machine.
HELD_TO: Mapping[Promise, tuple[When, When, When]] = {
    "no network": ("always", "always", "no_network"),
    "no way to the hypervisor": ("never", "never", "never"),  # engines from 23 on filter it
    "no host files": ("always", "always", "never"),
    "nothing written": ("always", "always", "never"),
    "own processes": ("always", "always", "never"),
    "own shared memory": ("always", "always", "no_network"),
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
    "disk limit on mapped files": ("separate_users", "separate_users", "separate_users"),  # only root sees them
    "file size limit": ("always", "always", "always"),
    "output limit": ("always", "always", "always"),
    "bounded scratch": ("always", "always", "never"),
    "no core dumps": ("always", "always", "always"),
    "ends whole tree": ("always", "always", "ends_whole_tree"),
    "nothing left behind": ("always", "always", "always"),
}


@dataclass(frozen=True)
class Result:
    """What came of one check; one that is not promised is not tried, and does not hold."""

    check: Check
    promised: bool
    held: bool
    seen: str  # empty when it held
    untried: bool = False  # it is promised, and could not be tried: whether it holds is not known


class NotTried(Exception):
    """An attack could not be made: nothing was seen against the sandbox, and nothing for it."""


def promised(sandbox: Sandbox, promise: Promise) -> bool:
    """Whether this sandbox is held to it on this machine. Raises: SandboxError."""
    when = HELD_TO[promise][PROVIDERS.index(sandbox.name)]
    if when in ("always", "never"):
        return when == "always"
    told = sandbox.promises()
    return not told.separate_users if when == "not separate_users" else bool(getattr(told, when))


def run_checks(
    sandbox: Sandbox,
    python: str,
    folder: Path,
    checks: Iterable[Check] = ALL,
    *,
    devices: frozenset[str] = frozenset(),
) -> list[Result]:
    """Try those that are promised, with `folder` for what is needed: one that every user may enter, left as it was.

    Raises: SandboxError when the sandbox cannot say what it promises, OSError.
    """
    results = []
    with Bench(sandbox, python, folder, devices=devices) as bench:
        for check in checks:
            if promised(sandbox, check.promise):
                try:
                    seen = tried(check, bench)
                except NotTried as failure:
                    results.append(Result(check, True, False, str(failure), untried=True))
                else:
                    results.append(Result(check, True, seen is None, seen or ""))
            else:
                results.append(Result(check, False, False, f"not promised by {sandbox.name}"))
    return results


def tried(check: Check, bench: Bench) -> str | None:
    """What was seen against it, promised or not; None when it holds. Raises: NotTried."""
    try:
        return check.run(bench)
    except (Unanswered, SandboxError, ProcessEnded, ChannelClosed, BadFrame, TimeoutError, OSError) as error:
        raise NotTried(str(error) or type(error).__name__) from error
