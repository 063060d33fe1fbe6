"""`agent image build` and `agent image list`: what a build fetches is shown, and fetched only after a yes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from agent.errors import Declined, WrongUsage
from agent.reporting import wording
from sandbox.devices.gpus import find_gpus
from sandbox.docker import image_check, images, requirements
from sandbox.docker.engine import Engine
from sandbox.docker.images import Image, Kind
from sandbox.docker.requirements import Requirements
from tools.plain_text import one_line

_SHOWN = 12  # requirements, before "and 30 more"
_KINDS: dict[str, Kind] = {"amd": "rocm", "nvidia": "cuda"}


def build(arguments: argparse.Namespace) -> int:
    """Make an image; its name is all that goes to standard output. Raises: RatchetError."""
    engine, target = Engine(), arguments.target
    if target is not None and not target.is_dir():
        raise WrongUsage(f"--for: there is no folder {target}", hint="It takes the folder of a repository.")
    wanted = None if target is None else requirements.read(target)
    kind = _kind(arguments)
    given, given_for = _sorted_out(arguments.args, kind, for_target=target is not None)
    fetched = [] if kind is None else images.fetched(kind, engine, base=arguments.base, args=given)
    needs = list(fetched)
    if wanted is not None:
        sources = ", ".join([given_for.get("PIP_INDEX_URL") or "pip's default index", *wanted.addresses])
        needs.append(f"{wording.count(len(wanted.lines), 'requirement')} from {sources}, with what they require")
        _about(wanted)
    if needs and not arguments.yes:
        _consent(needs, engine, wanted)
    started = time.monotonic()

    def say(line: str) -> None:
        _say(f"{wording.duration(time.monotonic() - started):>10}  {line}")

    name = str(arguments.base)
    if kind is not None:
        tag = arguments.tag if target is None else None
        name = images.build(kind, engine, base=arguments.base, tag=tag, args=given, network=bool(fetched), say=say)
    if target is not None:
        name = images.build_for(
            target, engine, base=name, tag=arguments.tag, args=given_for, wanted=wanted, network=True, say=say
        )
    _tell(name, engine)
    print(name)
    return 0


def show() -> int:
    """Every image that was made here, and what its labels say that it holds. Raises: RatchetError."""
    for line in _table(images.list_images(Engine())):
        print(line)
    return 0


def _kind(arguments: argparse.Namespace) -> Kind | None:
    """None when the target's image is made on the base that is named, as it is."""
    if arguments.kind is not None:
        return next(kind for kind in images.KINDS if kind == arguments.kind)
    if arguments.target is not None and arguments.base is not None:
        return None
    gpus = find_gpus().gpus
    kind = _KINDS[gpus[0].vendor] if gpus else "cpu"
    _say(f"making the {kind} image: this machine has {gpus[0].name if gpus else 'no GPU'}")
    return kind


def _sorted_out(
    pairs: Sequence[tuple[str, str]], kind: Kind | None, *, for_target: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Arguments for the image of the kind, and for the target's on top of it. Raises: WrongUsage."""
    takes = [images.arguments_of(each) if each else {} for each in (kind, "target" if for_target else None)]
    known = sorted({name for each in takes for name in each} - {"BASE"})
    for name, _ in pairs:
        if name not in known:
            raise WrongUsage(f"--arg: there is no argument {name}", hint=f"There is {', '.join(known)}.")
    of_kind, of_target = ({name: value for name, value in pairs if name in each} for each in takes)
    return of_kind, of_target


def _about(wanted: Requirements) -> None:
    """Say what is installed for a target, and what is not."""
    _say(f"to install, from {', '.join(wanted.files)}:")
    for line in wanted.lines[:_SHOWN]:
        _say(f"    {one_line(line.partition(' --hash')[0], 100)}")
    if len(wanted.lines) > _SHOWN:
        _say(f"    and {len(wanted.lines) - _SHOWN} more")
    for line in wanted.left_out:
        _say(f"left out, since it lies in the target or on this disk: {line}")


def _consent(needs: Sequence[str], engine: Engine, wanted: Requirements | None) -> None:
    """Raises: Declined."""
    what = f"This takes the network, for {'; '.join(needs)}."
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Declined(f"{what} There is no terminal to ask on, so nothing was done.", hint="--yes allows it.")
    _say(what)
    if wanted is not None:
        _say("Packages may run their own build scripts on installation: as root in a container, with that network.")
    if images.network_of_steps(engine) == "host":
        _say("The engine has no network of its own, so that is this machine's, with what listens on it.")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("Nothing was fetched or made.", hint="With --yes it does not ask.")


def _tell(name: str, engine: Engine) -> None:
    """Its labels say what was seen in it a moment ago. An engine lists docker.io/x:1 as x:1."""
    made = engine.image(name) or {}
    image = next(image for image in images.list_images(engine) if image.id == made.get("Id"))
    _say(f"made {name}: python {image.python}, torch {image.torch or 'none'}, triton {image.triton or 'none'}")
    # the image of a kind may lack a PyTorch: then a target has to bring it
    _say(f"it has {want}" if (want := image_check.want_of_torch(image.torch)) else f"a run uses it with --image {name}")


def _table(found: Sequence[Image]) -> Iterator[str]:
    if not found:
        yield "no images; `agent image build` makes one"
        return
    rows = [("name", "kind", "size", "made", "python", "torch", "triton")]
    for image in found:
        size, made = wording.gibibytes(image.size_bytes), f"{image.created.astimezone():%Y-%m-%d %H:%M}"
        versions = (image.python or "?", image.torch or "none", image.triton or "none")
        rows.append((image.name, image.kind, size, made, *versions))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
