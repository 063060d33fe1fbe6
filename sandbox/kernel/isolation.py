"""What the kernel takes away from a process: capabilities, keys, and life after its parent. Raises OSError.

Standard library only, because the supervisor uses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

# What root needs to become someone else inside; the command itself keeps none of them.
TO_CHANGE_USER = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_CAP_DAC_READ_SEARCH = 2
_KEYCTL_JOIN_SESSION_KEYRING = 1


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _prctl(option: int, value: int, what: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal when the thread that started us ends.

    The caller must then check that its parent still lives, and must call it again after any change of user.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number, "PR_SET_PDEATHSIG")


def leave_keyring() -> None:
    """Its own session keyring, empty: the user's holds keys and tickets, and goes from process to process."""
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
