"""Choose the provider: containers where an engine answers, else namespaces; none at all only when a person agrees.

Refuses to fall back from a provider that does not hold what it was asked for: that stops the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.contract import Sandbox
from sandbox.devices.record import Gpu
from sandbox.errors import SandboxUnavailable

Name = Literal["docker", "bwrap", "local"]
CONTAINING: tuple[Name, ...] = ("docker", "bwrap")


@dataclass(frozen=True)
class Wanted:
    """What the commands of a run need, whichever provider runs them; see `DockerSandbox` for the fields."""

    python: str
    scratch: Path
    owned: tuple[Path, ...] = ()
    mounts: tuple[Path, ...] = ()
    image: str | None = None
    gpu: Gpu | None = None


def make(name: Name, wanted: Wanted) -> Sandbox:
    """Raises: SandboxUnavailable when this provider has no such thing as what is wanted."""
    if name == "docker":
        from sandbox.docker.provider import DockerSandbox  # the SDK takes a while to import

        return DockerSandbox(
            wanted.python,
            wanted.scratch,
            owned=wanted.owned,
            image=wanted.image,
            mounts=wanted.mounts,
            gpu=wanted.gpu,
        )
    if wanted.image is not None:
        raise SandboxUnavailable(f"{name} has no images", hint="Use --sandbox docker, or leave --image out.")
    if name == "bwrap":
        from sandbox.bwrap.provider import BwrapSandbox

        return BwrapSandbox(wanted.python, wanted.scratch, owned=wanted.owned, mounts=wanted.mounts, gpu=wanted.gpu)
    from sandbox.local.provider import LocalSandbox

    return LocalSandbox(wanted.python, wanted.scratch, imports=("torch",), owned=wanted.owned, gpu=wanted.gpu)


def first_that_contains(wanted: Wanted) -> Sandbox | list[SandboxUnavailable]:
    """The first provider that works here and holds what it promises; else why each of them does not work.

    Raises: ContainmentNotHeld, DiskFull, SandboxError.
    """
    reasons = []
    for name in CONTAINING:
        try:
            sandbox = make(name, wanted)
            sandbox.promises()
        except SandboxUnavailable as reason:
            reasons.append(reason)
        else:
            return sandbox
    return reasons


def choose(wanted: Wanted, agree: Callable[[list[SandboxUnavailable]], bool]) -> Sandbox:
    """`agree` is asked before code runs uncontained, and told why. Raises: SandboxUnavailable, SandboxError."""
    found = first_that_contains(wanted)
    if not isinstance(found, list):
        return found
    if wanted.image is None and agree(found):
        return make("local", wanted)
    said = "; ".join(f"{name}: {reason.message}" for name, reason in zip(CONTAINING, found, strict=True))
    raise SandboxUnavailable(
        f"nothing here contains the target's code ({said})",
        hint=f"{found[0].hint} --sandbox local runs it uncontained.",
    )
