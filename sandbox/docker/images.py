"""Make images for targets from the Dockerfiles in `sandbox/images`, and list those that were made.

The network is used only when it is given, to fetch a base or for the steps of a build. Of a target nothing goes into a
build but the requirements that it declares.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from sandbox.docker import image_check, progress, requirements
from sandbox.docker.engine import Engine
from sandbox.docker.image_check import inspect
from sandbox.docker.progress import Built, Say
from sandbox.docker.requirements import Requirements
from sandbox.errors import DiskFull, ImageBuildFailed, SandboxError

Kind = Literal["rocm", "cuda", "cpu"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LABEL = "ratchet.image"
_SCRIPT = "packages.py"
_MOST_BYTES = 8 << 20
_SECRET = re.compile(r"://[^/\s]*@")
# What an argument may fetch unless it is empty or "no".
_FETCHES = {
    "COMPILER": "a C++ compiler, if the base has none",
    "TORCH": "PyTorch",
    "AITER": "the source of aiter, and what that requires",
}
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
    files, settled = _files(kind), _arguments(kind, base, args or {})
    name = tag or f"ratchet/{kind}:{_digest(files, settled)}"
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

    `wanted` is what was read of the target before, when a person has agreed to it. None of the target's code comes
    along or runs, but the packages' own build scripts do, with the network of the build. Raises: as `build`.
    """
    files = {**_files("target"), **(wanted or requirements.read(target)).as_files()}
    settled = _arguments("target", base, args or {})
    folder = re.sub(r"[^a-z0-9]+", "-", target.resolve().name.lower()).strip("-") or "target"
    name = tag or f"ratchet/for-{folder}:{_digest(files, settled)}"
    return _make(engine, files, settled, name, network, say, need_torch=True)


def fetched(kind: Kind, engine: Engine, *, base: str | None = None, args: Mapping[str, str] | None = None) -> list[str]:
    """What a build of this kind may take from the network, in words; nothing when it needs none.

    Raises: ImageBuildFailed, SandboxError.
    """
    settled = _arguments(kind, base, args or {})
    missing = [] if engine.has_image(settled["BASE"]) else [f"the image {settled['BASE']}"]
    return missing + [what for name, what in _FETCHES.items() if settled.get(name, "no") not in ("", "no")]


def arguments_of(kind: str) -> dict[str, str]:
    """The arguments of a Dockerfile, with the values they have when none is given."""
    lines = re.findall(r"^ARG (.*)$", _text(f"{kind}.Dockerfile"), re.MULTILINE)
    found = [each.partition("=")[::2] for line in lines for each in line.split()]
    return dict(reversed(found))  # the first value of a name: a later one without only lets it be seen


def _arguments(kind: str, base: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """All that a build is given. Raises: ImageBuildFailed for one that the Dockerfile does not take."""
    known = arguments_of(kind)
    for name, value in given.items():
        if name not in known or name == "BASE":
            takes = ", ".join(sorted(set(known) - {"BASE"}))
            raise ImageBuildFailed(
                f"the {kind} image takes no argument {name}", hint=f"It takes {takes}; --base names the base."
            )
        if _SECRET.search(value):
            raise ImageBuildFailed(
                f"{name} has a password or a token in its address, which would stay in the image's history",
                hint="Give an address that needs none.",
            )
    return {**known, **given, "BASE": base or known["BASE"]}


def _files(kind: str) -> dict[str, bytes]:
    """A Dockerfile and what of ours it copies."""
    text = _text(f"{kind}.Dockerfile")
    found = {"Dockerfile": text.encode()}
    return {**found, _SCRIPT: _text(_SCRIPT).encode()} if _SCRIPT in text else found


def _text(name: str) -> str:
    return resources.files("sandbox.images").joinpath(name).read_text()


def _digest(files: Mapping[str, bytes], settled: Mapping[str, str]) -> str:
    """The same for the same files and arguments."""
    return hashlib.sha256(repr((sorted(files.items()), sorted(settled.items()))).encode()).hexdigest()[:12]


def context(files: Mapping[str, bytes]) -> bytes:
    """A tar of exactly these files, the same bytes for the same files. Raises: ImageBuildFailed."""
    if (size := sum(map(len, files.values()))) > _MOST_BYTES:
        raise ImageBuildFailed(f"the files for the build take {size} bytes, more than {_MOST_BYTES}")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


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
    image = _built(progress.build(engine, context(files), network=steps, say=say, arguments=settled), network)
    try:
        contents = inspect(image, engine, need_torch=need_torch, called=name)
        labels = {f"ratchet.{what}": getattr(contents, what) or "" for what in ("python", "torch", "triton")}
        labels |= _digest_of(engine, base)
        # named only now, so that no image has a name that it does not deserve
        naming = context({"Dockerfile": f"FROM {image}\n".encode()})
        _built(progress.build(engine, naming, network="none", say=lambda line: None, tag=name, labels=labels), False)
    except SandboxError:
        engine.remove_image(image)
        raise
    return name


def _digest_of(engine: Engine, base: str) -> dict[str, str]:
    """The label that says which base exactly, where it came from a registry."""
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
    for network, name in (("default", "bridge"), ("host", "host")):
        if name in there:
            return network
    raise ImageBuildFailed(
        "the engine has no network for a build",
        hint="It needs one called bridge or host; `docker network ls` lists all.",
    )


def _built(built: Built, network: bool) -> str:
    """Its id. Raises: ImageBuildFailed, DiskFull."""
    if built.image is not None:
        return built.image
    said = "\n".join(f"    {line}" for line in (*built.last_lines, built.error) if line)
    if _DISK_FULL.search(said):
        raise _disk_full(f"the disk is full at {built.step[:100]}")
    hint = "This build had no network. What was done is kept for the next."
    if network:
        hint = "What was done is kept: the same command goes on from there."
    elif _NO_NETWORK.search(said):
        hint = "It seems to need the network, and this build had none; --yes allows it."
    where = built.step[:100] or "the Dockerfile"
    raise ImageBuildFailed(f"the image could not be made: it failed at {where}\n{said}", hint=hint)


def _disk_full(message: str) -> DiskFull:
    hint = "Free some space (`docker system df` tells what the engine holds); the same command then goes on from there."
    return DiskFull(message, hint=hint)
