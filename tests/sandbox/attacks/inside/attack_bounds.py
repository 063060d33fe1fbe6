"""What a hostile command tries in order to use up the machine, and to stay: processes, memory, disk, output, orphans.

Judges nothing, and refuses to try without end: it takes the amount it is told and holds it. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import resource
import select
import signal
import socket
import stat
import threading
import time

_libc = ctypes.CDLL(None, use_errno=True)
_MIB = 1 << 20
_LEAST = 4096  # that a file counts, be it empty
_PR_SET_DUMPABLE, _CLONE_FILES = 4, 0x400
_EXIT = {"x86_64": 60, "aarch64": 93}  # of one thread
_held: list[object] = []  # what is taken stays taken when the attack has told of it


def fork(count, counted):
    """So many children, none of them ending before it does; how many it got is in the file `counted` all along."""
    file = os.open(counted, os.O_CREAT | os.O_WRONLY, 0o600)
    for made in range(1, count + 1):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        os.pwrite(file, b"%d" % made, 0)


def hold_memory(mib):
    _held.extend(bytearray(b"x" * _MIB) for _ in range(mib))
    return mib


def hold_memory_in_files(mib, in_child=False):
    """Memory that no process maps: of files that have no name and are not written to any disk."""
    if in_child and os.fork() != 0:  # what the kernel kills is then not the process that is waited for
        return 0
    held = 0
    for _ in range(mib // 16):
        descriptor = os.memfd_create("held")
        for _ in range(16):
            held += os.write(descriptor, bytes(_MIB)) // _MIB
    return held


def hold_disk(folder, mib, how):
    """`how` is "files"; "at once" or "empty", which write nothing; or, where files are not looked for: "unlinked",
    "mapped", "sent", "to agent", "deep", "closed", "undumpable", and "threads", of a process whose first one has ended.
    """
    if how == "threads":
        return _in_late_thread(lambda: hold_disk(folder, mib, "unlinked"))
    if how == "undumpable":
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if how == "closed":
        folder = os.path.join(folder, how)
        os.mkdir(folder, 0o300)
    if how == "deep":
        os.chdir(folder)
        for _ in range(20):
            os.mkdir("n" * 250)
            os.chdir("n" * 250)
    if how == "at once":
        os.posix_fallocate(os.open(os.path.join(folder, "held"), os.O_CREAT | os.O_RDWR, 0o600), 0, mib * _MIB)
    elif how == "empty":
        for number in range(mib * _MIB // _LEAST):
            os.close(os.open(os.path.join(folder, f"held{number}"), os.O_CREAT | os.O_WRONLY, 0o600))
    else:
        for number in range(mib // 4):
            _hold_file(f"held{number}" if how == "deep" else os.path.join(folder, f"held{number}"), number, how)
    return mib


def _hold_file(path, number, how):
    """4 MiB that nothing could compress, or share with another file."""
    noise = _noise()
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    for part in range(4 * number, 4 * number + 4):
        os.write(descriptor, noise[part * 8 + 8 :] + noise[: part * 8 + 8])
    os.fsync(descriptor)
    if how in ("unlinked", "mapped", "sent", "to agent", "undumpable"):
        os.unlink(path)
    if how == "mapped":
        _map(descriptor)
    if how == "sent":
        _held.append(socket.socketpair())
        socket.send_fds(_held[-1][0], [b"x"], [descriptor])
    if how == "to agent" and not _sent_to_agent(descriptor):
        return  # newer kernels let the agent refuse it
    if how not in ("unlinked", "undumpable"):
        os.close(descriptor)


def _sent_to_agent(descriptor):
    for each in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(each).st_mode):
                with socket.socket(fileno=os.dup(each)) as channel:
                    socket.send_fds(channel, [b"x"], [descriptor])
                return True
    return False


@functools.cache
def _noise():
    return os.urandom(_MIB)


def _in_late_thread(work):
    """In a child whose first thread has ended, by one that shares no descriptors with it where it may refuse to."""
    ours, theirs = os.pipe()
    if os.fork() != 0:
        os.close(theirs)
        return int(os.read(ours, 64) or b"0")

    def late():
        _libc.unshare(_CLONE_FILES)
        time.sleep(0.2)
        os.write(theirs, b"%d" % work())
        time.sleep(20)
        os._exit(0)

    threading.Thread(target=late).start()
    _libc.syscall(_EXIT[platform.machine()], 0)


def _map(descriptor):
    """Without the second descriptor that Python's own mmap keeps."""
    read, shared = 1, 1
    _libc.mmap.restype = ctypes.c_ssize_t
    if _libc.mmap(None, ctypes.c_size_t(4096), read, shared, descriptor, ctypes.c_long(0)) == -1:
        raise OSError(ctypes.get_errno(), "it cannot be mapped")


def write_file(path, mib, stays=True):
    """How many bytes of it could be written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written = 0
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        if not stays:
            os.unlink(path)
        for _ in range(mib * 16):
            written += file.write(bytes(_MIB // 16))
    return written


def print_much(mib):
    for _ in range(mib):
        os.write(1, b"x" * _MIB)


def crash_in(folder):
    """A child leaves its memory behind in this folder, if it may, and if the machine keeps that simple; the limit."""
    os.chdir(folder)
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))
        os.kill(os.getpid(), signal.SIGSEGV)
    os.waitpid(child, 0)
    return most


def leave_children():
    """A grandchild in a session of its own whose parent is gone, deaf to what it may be deaf to."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            os.write(theirs, b"x")
            while True:
                select.select([], [], [], 60)
        os._exit(0)
    os.wait()
    return os.read(ours, 1).decode()
