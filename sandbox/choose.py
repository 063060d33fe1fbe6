"""Choose the provider: containers where an engine answers, else namespaces; none at all only when a person agrees.

Does not fall back from a provider that does not hold what it was asked for: that stops the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.contract import Sandbox
from sandbox.devices.record import Gpu
from sandbox.errors import SandboxUnavailable

Name = Literal["docker", "bwrap", "local"]
CONTAINING: tuple[Name, ...] = ("docker", "bwrap")
_OFFER = re.compile(r"[,;] or choose --sandbox \w+")  # how hints offer another provider, always at the end


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

        return DockerSandbox(**vars(wanted))
    if wanted.image is not None:
        raise SandboxUnavailable(f"{name} has no images", hint="Use --sandbox docker, or leave --image out.")
    if name == "bwrap":
        from sandbox.bwrap.provider import BwrapSandbox

        return BwrapSandbox(wanted.python, wanted.scratch, owned=wanted.owned, mounts=wanted.mounts, gpu=wanted.gpu)
    from sandbox.local.provider import LocalSandbox

    return LocalSandbox(wanted.python, wanted.scratch, imports=("torch",), owned=wanted.owned, gpu=wanted.gpu)


Agree = Callable[[list[SandboxUnavailable]], bool]  # asked before code runs uncontained, and told why


def choose(
    wanted: Wanted,
    agree: Agree,
    passed_over: dict[Name, SandboxUnavailable] | None = None,
) -> Sandbox:
    """The first provider that works here and holds what it promises.

    What is not used is put into `passed_over`.
    Raises: SandboxUnavailable, ContainmentNotHeld, DiskFull, SandboxError.
    """
    reasons = {} if passed_over is None else passed_over
    for name in CONTAINING:
        try:
            sandbox = make(name, wanted)
            sandbox.promises()
            return sandbox
        except SandboxUnavailable as reason:
            reasons[name] = _tried_out(reason)
    if wanted.image is None and agree(list(reasons.values())):
        return make("local", wanted)
    said = "; ".join(f"{name}: {reason.message}" for name, reason in reasons.items())
    if wanted.image is not None:  # only one provider has images
        hint = reasons["docker"].hint
    else:
        each = [f"For {name}: {reason.hint}" for name, reason in reasons.items() if reason.hint]
        hint = " ".join([*each, "--sandbox local runs it uncontained."])
    raise SandboxUnavailable(f"nothing here contains the target's code ({said})", hint=hint)


def _tried_out(reason: SandboxUnavailable) -> SandboxUnavailable:
    """The same without the offer of another provider: that was tried, or is tried next."""
    return SandboxUnavailable(reason.message, hint=_OFFER.sub("", reason.hint))
