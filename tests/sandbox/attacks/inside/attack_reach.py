"""What a hostile command tries in order to reach beyond what it was given: network, files, processes, memory, keys.

It does no harm where it gets through: it signals only what it is pointed at, and removes at once what it makes outside
of its folders. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import socket

_libc = ctypes.CDLL(None, use_errno=True)
_PTRACE_SEIZE = 0x4206
_GET_KEYRING_ID, _SESSION_KEYRING, _USER_KEYRING = 0, -3, -4
KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)  # the number of the system call
_PATIENCE_S = 0.3


def say_to(kind, addresses, token):
    """The token, by a socket of this kind, to each (family, address)."""
    for family, address in addresses:
        with contextlib.suppress(OSError), socket.socket(family, kind) as sock:
            sock.settimeout(_PATIENCE_S)
            sock.connect(address if isinstance(address, str) else tuple(address))
            sock.sendall(token.encode())


def make_sockets(families):
    """Those of the address families of which it gets a socket. Nothing is sent."""
    made = []
    for family in families:
        with contextlib.suppress(OSError):
            socket.socket(family, socket.SOCK_STREAM).close()
            made.append(family)
    return made


def identify(paths):
    """Device and inode of each that is seen."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            facts = os.stat(path)
            found[path] = [facts.st_dev, facts.st_ino]
    return found


def read(paths):
    """The beginning of each file that can be read."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError), open(path, errors="replace") as file:
            found[path] = file.read(4096)
    return found


def read_through_processes(path):
    """The same file by way of every process that is seen."""
    ways = [f"/proc/{name}/{way}{path}" for name in _processes() for way in ("root", "cwd" + "/.." * 20)]
    return read(ways)


def read_by_climbing(folder, path):
    """From a folder up by descriptors to where there is no further, then down again."""
    step = os.open(folder, os.O_RDONLY)
    for _ in range(64):
        step = os.open("..", os.O_RDONLY, dir_fd=step)
    for name in path.strip("/").split("/"):
        try:
            step = os.open(name, os.O_RDONLY, dir_fd=step)
        except OSError:
            return ""
    return os.read(step, 4096).decode(errors="replace")


def read_by_link(link, path):
    os.symlink(path, link)
    return read([link]).get(link, "")


def create_in(folders):
    """Those in which a file could be made; it is removed at once."""
    made = []
    for folder in folders:
        path = os.path.join(folder, "ratchet-check-" + secrets.token_hex(8))
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.unlink(path)
            made.append(folder)
    return made


def change(path, folder):
    """What could be done to a file that it may only read; `folder` is one that it may write to."""

    def append():
        with open(path, "a") as file:
            file.write("changed")

    ways = {
        "chmod": lambda: os.chmod(path, 0o600),
        "touch": lambda: os.utime(path, (0, 0)),
        "write": append,
        "truncate": lambda: os.truncate(path, 0),
        "link": lambda: os.link(path, os.path.join(folder, "link")),
        "rename": lambda: os.rename(path, path + ".renamed"),
        "unlink": lambda: os.unlink(path),
    }
    done = []
    for name, way in ways.items():
        with contextlib.suppress(OSError):
            way()
            done.append(name)
    return done


def mounts():
    """Point and options of each; options both of the mount and of what is mounted."""
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            point, options = before.split()[4:6]
            for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                point = point.replace(code, sign)
            found.append([point, options.split(",") + after.split(maxsplit=2)[2].strip().split(",")])
    return found


def _processes():
    return [name for name in os.listdir("/proc") if name.isdigit()]


def search_processes(token):
    """The files of processes that tell the token: what they were started with, and their variables."""
    found = []
    for name in _processes():
        for kind in ("cmdline", "environ"):
            with contextlib.suppress(OSError), open(f"/proc/{name}/{kind}", "rb") as file:
                if token.encode() in file.read():
                    found.append(f"/proc/{name}/{kind}")
    return found


def signal_to(pid, all_but_in):
    """SIGKILL to one process by its number, then a signal to all there are, unless they are all of this machine."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    if os.stat("/proc/self/ns/pid").st_ino == all_but_in:
        return "it shares the pid namespace of this machine"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # there is nobody but itself
        os.kill(-1, signal.SIGTERM)
    return None


def trace(pid):
    """Whether a child could get hold of the process; by ending the child lets go again."""
    child = os.fork()
    if child == 0:
        os._exit(0 if _libc.ptrace(_PTRACE_SEIZE, pid, None, None) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def find_shared_memory(key):
    """Whether there is a System V segment of this key."""
    return _libc.shmget(key, 0, 0) >= 0


def keyrings():
    """The kernel's numbers of its session's and its user's keyring; none where it may not ask."""
    if KEYCTL is None:
        return []
    asked = [_libc.syscall(KEYCTL, _GET_KEYRING_ID, which, 0) for which in (_SESSION_KEYRING, _USER_KEYRING)]
    return [ring for ring in asked if ring >= 0]


def other_groups():
    """Control groups that are seen below those it is in."""
    found = []
    for parent, folders, _ in os.walk("/sys/fs/cgroup"):
        if "cgroup.procs" in os.listdir(parent):
            found += [os.path.join(parent, name) for name in folders]
            folders.clear()
    return found
