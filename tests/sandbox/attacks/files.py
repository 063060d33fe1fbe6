"""Checks that a command sees no file of this machine but what it was given, and writes to none but its own.

What lies beside its folders is the bench's own; of other files it is only asked whether they are seen.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from sandbox.verification import identity
from tests.sandbox.attacks.bench import Bench, checks_in, claim

_ENGINES = ("docker.sock", "containerd/containerd.sock", "podman/podman.sock", "crio/crio.sock")
_NOBODYS = ("/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers", "/var/lib/docker", "/var/log", "/var/spool")
_PLACES = """
/ /etc /usr /usr/bin /usr/lib /usr/local /bin /lib /dev /sys /sys/fs/cgroup /proc /var /var/tmp /run /opt /home /root
"""
_WRITE_TO = _PLACES.split()
_OWN_SCRATCH = ("/tmp", "/dev/shm")
# Looked at by the checks of the kernel's settings and of device nodes; the folders themselves are among `_WRITE_TO`.
_SYSTEM = ("/proc", "/dev", "/sys/fs/cgroup")


def _told(bench: Bench, found: dict[str, str]) -> list[str]:
    """The paths by which it read the token."""
    return [path for path, text in found.items() if bench.token in text]


def _same(bench: Bench, paths: list[str]) -> list[str]:
    """Those of which it sees this machine's own, and not another of the same name."""
    return [path for path, facts in bench.ask("identify", paths=paths).items() if facts == identity(path)]


@claim("a file beside its folders cannot be read, though it is open to every user", "no host files")
def beside(bench: Bench) -> object:
    return _told(bench, bench.ask("read", paths=[str(bench.secret)]))


@claim("a file in this machine's /tmp or /dev/shm cannot be read", "no host files")
def scratch(bench: Bench) -> object:
    paths = [Path(folder) / f"ratchet-check-{bench.token}" for folder in ("/tmp", "/dev/shm", "/var/tmp")]
    try:
        for path in paths:
            with contextlib.suppress(OSError):
                path.write_text(bench.token)
                path.chmod(0o644)
        return _told(bench, bench.ask("read", paths=list(map(str, paths))))
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


@claim("homes, passwords, keys and logs of this machine cannot be seen", "no host files")
def private(bench: Bench) -> object:
    homes = (path for path in Path("/home").glob("*") if path.is_dir())
    return _same(bench, [*_NOBODYS, str(Path.home()), str(Path.home() / ".ssh"), *map(str, homes)])


@claim("the socket of a container engine cannot be seen", "no host files")
def engines(bench: Bench) -> object:
    folders = ("/run", "/var/run", os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}"))
    return _same(bench, [f"{folder}/{name}" for folder in folders for name in _ENGINES])


@claim("no process that it sees leads to a file beside its folders", "no host files")
def through_processes(bench: Bench) -> object:
    return _told(bench, bench.ask("read_through_processes", path=str(bench.secret)))


@claim("climbing out of a given folder leads to no file beside it", "no host files")
def climbing(bench: Bench) -> object:
    folders = map(str, (bench.given, bench.guest.kept))
    return _told(bench, {each: bench.ask("read_by_climbing", folder=each, path=str(bench.secret)) for each in folders})


@claim("a link that it makes in its folder leads to no file beside it", "no host files")
def own_link(bench: Bench) -> object:
    link = str(bench.guest.kept / f"link-{secrets.token_hex(4)}")
    return _told(bench, {link: bench.ask("read_by_link", link=link, path=str(bench.secret))})


@claim("a link that lies in a given folder leads to no file beside it", "no host files")
def given_link(bench: Bench) -> object:
    link = bench.given / "link"
    link.symlink_to(bench.secret)
    return _told(bench, bench.ask("read", paths=[str(link)]))


@claim("a file that it may read cannot be changed, though it is open to every user", "nothing written")
def given_file(bench: Bench) -> object:
    folder = bench.given / "open"
    file = folder / "file"
    folder.mkdir()
    folder.chmod(0o777)
    file.write_text(bench.token)
    file.chmod(0o666)
    before = file.stat()
    done = bench.ask("change", path=str(file), folder=str(bench.guest.kept))
    with contextlib.suppress(FileNotFoundError):
        after = file.stat()
        same = all(getattr(after, name) == getattr(before, name) for name in ("st_mode", "st_nlink", "st_mtime_ns"))
        if same and file.read_text() == bench.token:
            return done
    return done or "it was changed"


@claim(
    "no file can be made among this machine's programs and settings, the interpreter's, or beside its channel",
    "nothing written",
)
def system(bench: Bench) -> object:
    channel = os.path.dirname(bench.guest.variables()["RATCHET_CHANNEL"])
    python = Path(bench.python)
    return bench.ask(
        "create_in", folders=[*_WRITE_TO, *map(str, (bench.given, python.resolve().parent, python.parent)), channel]
    )


@claim("nothing but its own folders is mounted to be written to", "nothing written")
def mounts(bench: Bench) -> object:
    allowed = {str(bench.guest.kept), *_OWN_SCRATCH}
    writable = [point for point, options in bench.ask("mounts") if "ro" not in options and point not in allowed]
    return [point for point in writable if not any(Path(point).is_relative_to(top) for top in _SYSTEM)]


@claim("a folder to read that lies in one to write cannot be written to", "nothing written")
def nested(bench: Bench) -> object:
    guest = bench.start(nested="inner")
    return guest.ask("create_in", folders=[str(guest.kept / "inner")])


CHECKS = checks_in(globals())
