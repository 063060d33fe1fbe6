"""What a hostile command tries in order to use up the machine, and to stay: processes, memory, disk, output, orphans.

It takes the amount it is told and holds it. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time

_MIB = 1 << 20
_LEAST = 4096  # that a file counts, be it empty
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
    """`how` is "files", "deep" or "unlinked"; "at once" or "empty", which write nothing."""
    os.chdir(folder)
    for _ in range(20 if how == "deep" else 0):
        os.mkdir("n" * 250)
        os.chdir("n" * 250)
    if how == "at once":
        os.posix_fallocate(os.open("held", os.O_CREAT | os.O_RDWR, 0o600), 0, mib * _MIB)
        return
    size = 0 if how == "empty" else 4 * _MIB
    for number in range(mib * _MIB // (size or _LEAST)):
        descriptor = os.open(f"held{number}", os.O_CREAT | os.O_RDWR, 0o600)
        if size:
            for _ in range(size // _MIB):
                os.write(descriptor, os.urandom(_MIB))  # which nothing could compress
            os.fsync(descriptor)
        if how == "unlinked":
            os.unlink(f"held{number}")
        else:
            os.close(descriptor)


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
