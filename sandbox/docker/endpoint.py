"""Where the container engine of this machine listens, tried out.

Refuses engines elsewhere: paths, processes and devices of another machine are not ours to hand out.
"""

from __future__ import annotations

import errno
import os
import socket

from sandbox.errors import SandboxUnavailable

DEFAULT_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
VARIABLE = "DOCKER_HOST"
_CONNECT_S = 5.0
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)


def find_socket() -> str:
    """The first that lets us in: what DOCKER_HOST names, else the usual ones and a user's own.

    Raises: SandboxUnavailable.
    """
    named = os.environ.get(VARIABLE, "")
    if named and not named.startswith("unix://"):
        raise SandboxUnavailable(
            f"{VARIABLE} names an engine by {named.partition('://')[0]}: only one on this machine can be given files",
            hint=f"Unset {VARIABLE} to use this machine's engine.",
        )
    failures: dict[str, OSError] = {}
    for place in [named.removeprefix("unix://")] if named else _usual():
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
                trial.settimeout(_CONNECT_S)
                trial.connect(place)
        except OSError as error:
            failures[place] = error
        else:
            return os.path.realpath(place)
    raise _named_wrongly(failures) if named else _none(failures)


def _usual() -> list[str]:
    runtime = os.environ.get("XDG_RUNTIME_DIR")  # of engines that run without root
    return [*DEFAULT_SOCKETS, *([f"{runtime}/docker.sock"] if runtime else [])]


def _none(failures: dict[str, OSError]) -> SandboxUnavailable:
    """For a person, the one of several failures that is nearest to an engine."""
    silent = [place for place, error in failures.items() if error.errno not in _NOT_THERE]
    closed = [place for place in silent if isinstance(failures[place], PermissionError)]
    if closed:
        return SandboxUnavailable(
            f"you may not use the container engine: {closed[0]} is closed to you",
            hint="Ask for membership of the group that owns it (often: sudo usermod -aG docker $USER, then log in "
            "again), or choose --sandbox bwrap.",
        )
    return SandboxUnavailable(
        f"nobody answers at {silent[0]} ({_words(failures[silent[0]])})"
        if silent
        else "there is no container engine on this machine",
        hint="Start it (sudo systemctl start docker), install one (Debian: docker.io), or choose --sandbox bwrap.",
    )


def _named_wrongly(failures: dict[str, OSError]) -> SandboxUnavailable:
    ((place, error),) = failures.items()
    if isinstance(error, PermissionError):
        return _none(failures)
    return SandboxUnavailable(
        f"there is no container engine at {place}, which {VARIABLE} names ({_words(error)})",
        hint=f"Start it there, or unset {VARIABLE} to use this machine's engine, or choose --sandbox bwrap.",
    )


def _words(error: OSError) -> str:
    return error.strerror or str(error)
