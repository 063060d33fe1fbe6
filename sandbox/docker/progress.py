"""Fetch and build images; what the engine tells meanwhile is foreign text, passed on without control characters."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox.docker import engine as engines
from sandbox.docker.engine import Engine

_LAST_LINES = 15  # of what a step prints, kept for a message
_MOST_LINES = 20_000  # of a build, passed on
_WIDTH = 240
_PROGRESS_S = 5.0  # between two reports of what has been fetched
_NOISE = ("--->", "Removing intermediate container ", "Successfully ", "[Warning] One or more build-args")

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Built:
    """How a build ended."""

    image: str | None  # its id, when it was made
    step: str = ""  # the instruction it was at
    error: str = ""
    last_lines: tuple[str, ...] = ()  # of what that step printed


def fetch(engine: Engine, name: str, say: Say) -> None:
    """Fetch an image over the network; it takes as long as it takes. Raises: SandboxError, DiskFull."""
    fetched, said_s = dict[str, tuple[int, int]](), time.monotonic()
    for event in engine.fetching(name):
        if event.get("error"):
            raise engines.failure(f"fetch the image {name}", plain(str(event["error"])))
        detail = event.get("progressDetail") or {}
        if event.get("status") == "Downloading" and detail.get("total"):
            fetched[str(event.get("id"))] = (int(detail.get("current", 0)), int(detail["total"]))
            if time.monotonic() - said_s > _PROGRESS_S:
                said_s = time.monotonic()
                now, known = (sum(part) / 2**30 for part in zip(*fetched.values(), strict=True))
                say(f"fetched {now:.2f} GiB of the {known:.2f} GiB that are begun")
        elif not detail and event.get("status") not in ("Pulling fs layer", "Waiting", "Verifying Checksum"):
            say(plain(f"{event.get('id', '')} {event.get('status', '')}"))


def build(
    engine: Engine,
    context: bytes,
    *,
    network: str,
    say: Say,
    tag: str | None = None,
    arguments: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Built:
    """Build from a tar that holds a Dockerfile and all that it copies; a step that fails is a result.

    Nothing is fetched but by the steps, in `network`: the base has to be here. Raises: SandboxError, DiskFull.
    """
    image, step, begun, count, last = None, "", "", 0, deque[str](maxlen=_LAST_LINES)
    for event in engine.building(context, network, tag=tag, buildargs=dict(arguments or {}), labels=dict(labels or {})):
        image = (event.get("aux") or {}).get("ID", image)
        ended = event.get("error")
        *lines, begun = f"{begun}{event.get('stream', '')}{chr(10) if ended else ''}".split("\n")
        begun = begun[: 4 * _WIDTH]  # a line without end is cut
        for line in filter(None, map(plain, lines)):
            if line.startswith(_NOISE):
                continue
            if line.startswith("Step "):
                step = line.partition(" : ")[2]
                last.clear()
            else:
                last.append(line)
            count += 1
            if count <= _MOST_LINES:
                say(line if count < _MOST_LINES else "(no more of this is shown)")
        if ended:
            status = (event.get("errorDetail") or {}).get("code")
            return Built(None, step, f"it ended with status {status}" if status else plain(str(ended)), tuple(last))
    return Built(None if image is None else str(image))


def plain(text: str) -> str:
    """One line without control characters and colours, and not long."""
    text = _COLOURS.sub("", text[: 4 * _WIDTH])
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:_WIDTH]
