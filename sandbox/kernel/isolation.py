"""What the kernel takes away from a process: namespaces, capabilities, and life after its parent.

Refuses to choose: it does what it is told or raises OSError. Standard library only, because the supervisor uses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

# What root needs to become somebody else inside; the command itself keeps none of them.
TO_CHANGE_USER = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_CAP_DAC_READ_SEARCH = 2
_KEYCTL_JOIN_SESSION_KEYRING = 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, value: int, what: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


def _unshare(flags: int, what: str) -> None:
    _check(_libc.unshare(flags), what)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    _check(
        _libc.mount(encoded(source), encoded(target), encoded(kind), ctypes.c_ulong(flags), encoded(data)),
        f"mount on {target}",
    )


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal when the thread that started us ends.

    The caller must then check that its parent still lives, and must call it again after any change of user.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number, "PR_SET_PDEATHSIG")


def leave_keyring() -> None:
    """A session keyring of its own, empty: the user's holds keys and tickets, and goes from process to process."""
    number = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
    if number is not None and _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None) < 0:
        failed = ctypes.get_errno()
        if failed not in (errno.ENOSYS, errno.EPERM):  # no keys in this kernel, or closed to us: to the command too
            raise OSError(failed, f"KEYCTL_JOIN_SESSION_KEYRING: {os.strerror(failed)}")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, whatever session it moved to."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def close_to_tracers() -> None:
    """Keep other processes of the same user from tracing this one or reading its memory and environment."""
    _prctl(_PR_SET_DUMPABLE, 0, "PR_SET_DUMPABLE")


def enter_user_namespace() -> None:
    """A user namespace in which we are who we were, but may make further namespaces."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(_CLONE_NEWUSER, "user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def enter_network_namespace() -> None:
    """No network but a loopback device of our own; no abstract sockets and no System V memory of others either."""
    _unshare(_CLONE_NEWNET | _CLONE_NEWIPC, "network namespace")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def next_child_leads_pid_namespace() -> None:
    """The next child becomes process 1 of a namespace of its own: when it ends, the kernel ends all others there."""
    _unshare(_CLONE_NEWPID, "pid namespace")


def see_only_own_processes() -> None:
    """Called by process 1: a /proc that shows this pid namespace, and control groups out of reach.

    Without it a program that looks itself up in /proc would find somebody else's process under its pid.
    """
    _unshare(_CLONE_NEWNS, "mount namespace")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    if Path("/sys/fs/cgroup").is_dir():
        _mount("none", "/sys/fs/cgroup", "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "size=4k")


def drop_privileges() -> None:
    """No capability survives the next exec, and no set-user-id program gives one back.

    One is left to root: reading what root may read, because a target's interpreter may lie in a user's home.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    # EPERM: an unprivileged user has none to drop, and keeps none over an exec
    with contextlib.suppress(PermissionError):
        for capability in range(last + 1):
            if capability != _CAP_DAC_READ_SEARCH:
                _prctl(_PR_CAPBSET_DROP, capability, "PR_CAPBSET_DROP")
    _clear_ambient()


def _clear_ambient() -> None:
    try:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, "PR_CAP_AMBIENT")
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel that has none
            raise
