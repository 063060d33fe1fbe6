"""Find the container engine of this machine by connecting to its socket.

Engines elsewhere are refused: paths, processes and devices of another machine are not ours to hand out.
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
    runtime = os.environ.get("XDG_RUNTIME_DIR")  # of engines that run without root
    usual = [*DEFAULT_SOCKETS, *([f"{runtime}/docker.sock"] if runtime else [])]
    failures: dict[str, OSError] = {}
    for place in [named.removeprefix("unix://")] if named else usual:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
                trial.settimeout(_CONNECT_S)
                trial.connect(place)
        except OSError as error:
            failures[place] = error
        else:
            return os.path.realpath(place)
    raise _nearest(failures, named=bool(named))


def _nearest(failures: dict[str, OSError], *, named: bool) -> SandboxUnavailable:
    """For a person, the one of several failures that is nearest to an engine."""
    silent = [place for place, error in failures.items() if named or error.errno not in _NOT_THERE]
    if closed := [place for place in silent if isinstance(failures[place], PermissionError)]:
        return SandboxUnavailable(
            f"you may not use the container engine: {closed[0]} is closed to you",
            hint="Ask for membership of the group that owns it (often: sudo usermod -aG docker $USER, then log in "
            "again), or choose --sandbox bwrap.",
        )
    why = f"({failures[silent[0]].strerror or failures[silent[0]]})" if silent else ""
    if named:
        return SandboxUnavailable(
            f"there is no container engine at {silent[0]}, which {VARIABLE} names {why}",
            hint=f"Start it there, or unset {VARIABLE} to use this machine's engine, or choose --sandbox bwrap.",
        )
    return SandboxUnavailable(
        f"no engine answers at {silent[0]} {why}" if silent else "there is no container engine on this machine",
        hint="Start it (sudo systemctl start docker), install one (Debian: docker.io), or choose --sandbox bwrap.",
    )
