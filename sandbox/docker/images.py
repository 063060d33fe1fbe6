"""Make images for targets, and list those that were made.

Refuses the network unless it is given, to fetch a base or for the steps of a build; and to take anything of a target
into a build but what it says that it requires.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sandbox.docker import image_check, progress, recipes, requirements
from sandbox.docker.engine import Engine
from sandbox.docker.image_check import Contents, inspect
from sandbox.docker.progress import Built, Say
from sandbox.docker.recipes import Kind
from sandbox.docker.requirements import Requirements
from sandbox.errors import DiskFull, ImageBuildFailed, SandboxError

LABEL = "ratchet.image"
_NO_NETWORK = re.compile(
    "Temporary failure in name resolution|Temporary failure resolving|Could not resolve|Name or service not known"
    "|Network is unreachable|NewConnectionError|Failed to establish a new connection|No matching distribution found",
    re.IGNORECASE,
)
_DISK_FULL = re.compile("no space left on device", re.IGNORECASE)


@dataclass(frozen=True)
class Image:
    """An image that was made here. What it holds is what its labels claim; `inspect` asks the image itself."""

    name: str
    id: str
    size_bytes: int
    created: datetime
    kind: str
    torch: str
    triton: str
    python: str


def list_images(engine: Engine) -> list[Image]:
    """By name. Raises: SandboxError."""
    found = []
    for each in engine.images(LABEL):
        labels = {name: progress.plain(str(value)) for name, value in (each.get("Labels") or {}).items()}
        torch, triton, python = (labels.get(f"ratchet.{what}", "") for what in ("torch", "triton", "python"))
        created = datetime.fromtimestamp(int(each.get("Created") or 0), UTC)
        for name in each.get("RepoTags") or [str(each["Id"])]:
            size_bytes = int(each.get("Size") or 0)
            found.append(Image(name, str(each["Id"]), size_bytes, created, labels[LABEL], torch, triton, python))
    return sorted(found, key=lambda image: image.name)


def build(
    kind: Kind,
    engine: Engine,
    *,
    base: str | None = None,
    tag: str | None = None,
    args: Mapping[str, str] | None = None,
    network: bool = False,
    say: Say = lambda line: None,
) -> str:
    """Make the image of a kind, and return its name. Without `network` all it takes has to be here.

    `args` are arguments of its Dockerfile; the engine keeps them in the image's history.
    Raises: ImageBuildFailed, ImageUnusable (of the base, or of what came out), DiskFull, SandboxError.
    """
    files, settled = recipes.files(kind), recipes.arguments(kind, base, args or {})
    name = tag or f"ratchet/{kind}:{recipes.digest(files, settled)}"
    return _make(engine, files, settled, name, network, say, need_torch=False)


def build_for(
    target: Path,
    engine: Engine,
    *,
    base: str,
    tag: str | None = None,
    args: Mapping[str, str] | None = None,
    wanted: Requirements | None = None,
    network: bool = False,
    say: Say = lambda line: None,
) -> str:
    """Make an image of `base` and what this target requires, and return its name.

    `wanted` is what was read of the target before, when somebody has agreed to it. None of the target's code comes
    along or runs, but the packages' own build scripts do, with the network of the build. Raises: as `build`.
    """
    files = {**recipes.files("target"), **(wanted or requirements.read(target)).as_files()}
    settled = recipes.arguments("target", base, args or {})
    folder = re.sub(r"[^a-z0-9]+", "-", target.resolve().name.lower()).strip("-") or "target"
    name = tag or f"ratchet/for-{folder}:{recipes.digest(files, settled)}"
    return _make(engine, files, settled, name, network, say, need_torch=True)


def fetched(kind: Kind, engine: Engine, *, base: str | None = None, args: Mapping[str, str] | None = None) -> list[str]:
    """What a build of this kind may take from the network, in words; nothing when it needs none.

    Raises: ImageBuildFailed, SandboxError.
    """
    settled = recipes.arguments(kind, base, args or {})
    missing = [] if engine.has_image(settled["BASE"]) else [f"the image {settled['BASE']}"]
    return missing + recipes.may_fetch(settled)


def _make(
    engine: Engine,
    files: Mapping[str, bytes],
    settled: Mapping[str, str],
    name: str,
    network: bool,
    say: Say,
    *,
    need_torch: bool,
) -> str:
    base = settled["BASE"]
    _have(engine, base, network, say)
    image_check.usable(engine, base)
    steps = network_of_steps(engine) if network else "none"
    built = progress.build(engine, recipes.context(files), network=steps, say=say, arguments=settled)
    if built.image is None:
        raise _failed(built, network)
    try:
        contents = inspect(built.image, engine, need_torch=need_torch, called=name)
        _name(engine, built.image, name, {**_labels(contents), **_digest_of(engine, base)})
    except SandboxError:
        engine.remove_image(built.image)
        raise
    return name


def _name(engine: Engine, image: str, name: str, labels: Mapping[str, str]) -> None:
    """Only now, so that no image has a name that it does not deserve."""
    context = recipes.context({"Dockerfile": f"FROM {image}\n".encode()})
    built = progress.build(engine, context, network="none", say=lambda line: None, tag=name, labels=labels)
    if built.image is None:
        raise _failed(built, network=False)


def _labels(contents: Contents) -> dict[str, str]:
    return {f"ratchet.{what}": getattr(contents, what) or "" for what in ("python", "torch", "triton")}


def _digest_of(engine: Engine, base: str) -> dict[str, str]:
    """Which base exactly, where it came from a registry."""
    digests = (engine.image(base) or {}).get("RepoDigests") or []
    return {"org.opencontainers.image.base.digest": str(digests[0]).partition("@")[2]} if digests else {}


def _have(engine: Engine, base: str, network: bool, say: Say) -> None:
    """Raises: ImageBuildFailed when the base is not here and cannot be fetched."""
    if engine.has_image(base):
        return
    if not network:
        raise ImageBuildFailed(
            f"the base {base} is not among the engine's images, and fetching it takes a network",
            hint="Allow the network (--yes does), or name one with --base that is here.",
        )
    say(f"fetching {base}")
    try:
        progress.fetch(engine, base, say)
    except DiskFull as error:
        raise _disk_full(error.message) from error
    except SandboxError as error:
        hint = "Is the name right, and the network there? --base names another."
        raise ImageBuildFailed(error.message, hint=hint) from error


def network_of_steps(engine: Engine) -> str:
    """What a build with a network gets: the engine's own, or "host" where it has none (--bridge=none).

    Raises: ImageBuildFailed, SandboxError.
    """
    there = engine.networks()
    for network, name in (("default", "bridge"), ("podman", "podman"), ("host", "host")):
        if name in there:
            return network
    raise ImageBuildFailed(
        "the engine has no network for a build",
        hint="It needs one called bridge or host; `docker network ls` lists all.",
    )


def _failed(built: Built, network: bool) -> SandboxError:
    said = "\n".join(f"    {line}" for line in (*built.last_lines, built.error) if line)
    if _DISK_FULL.search(said):
        return _disk_full(f"the disk is full at {built.step[:100]}")
    message = f"the image could not be made: it failed at {built.step[:100] or 'the Dockerfile'}\n{said}"
    if network:
        return ImageBuildFailed(message, hint="What was done is kept: the same command goes on from there.")
    if _NO_NETWORK.search(said):
        return ImageBuildFailed(message, hint="It seems to need the network, and this build had none; --yes allows it.")
    return ImageBuildFailed(message, hint="This build had no network. What was done is kept for the next.")


def _disk_full(message: str) -> DiskFull:
    hint = "Free some space (`docker system df` tells what the engine holds); the same command then goes on from there."
    return DiskFull(message, hint=hint)
