"""What a hostile command tries in order to be more than it is: capabilities, other users, mounts, devices, settings.

It changes nothing of the machine's: what it makes lies in its own folders, or goes with the child that made it.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
import subprocess

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MOST_SETTINGS, _MOST_TOLD = 100_000, 1000


def status():
    """/proc/self/status."""
    with open("/proc/self/status") as file:
        lines = (line.partition(":") for line in file)
        return {name: value.split() for name, _, value in lines}


def run(program, arguments):
    """What another program prints."""
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=10).stdout


def copy_program(name, to):
    """A copy of its own of a program that it sees, with the set-user-id bit; whether there is one."""
    program = shutil.which(name, path=os.defpath)
    if program is not None:
        shutil.copyfile(program, to)
        os.chmod(to, 0o6755)
    return program is not None


def make_special_files(folder):
    ways = {
        "character device": lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3)),
        "block device": lambda path: os.mknod(path, stat.S_IFBLK | 0o666, os.makedev(7, 0)),
        "fifo": os.mkfifo,
        "link": lambda path: os.symlink("/etc/shadow", path),
    }
    for name, way in ways.items():
        with contextlib.suppress(OSError):
            way(os.path.join(folder, name))


def new_user_namespace():
    """The capabilities it has in a user namespace that it makes, in hexadecimal; "0" when it cannot."""

    def work():
        if _libc.unshare(_CLONE_NEWUSER) < 0:
            return "0"
        return status()["CapEff"][0]

    return _in_child(work)


def mount_on(folder):
    """How it could mount something: at once, or in namespaces of its own. It goes with the child that did it."""

    def work():
        if _mount(folder):
            _libc.umount2(folder.encode(), 2)
            return "at once"
        _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS)
        return "in namespaces of its own" if _mount(folder) else ""

    return _in_child(work)


def _mount(folder):
    return _libc.mount(b"none", folder.encode(), b"tmpfs", 0, b"size=4k") == 0


def devices():
    """Device nodes that are seen, terminals left out."""
    found = []
    for parent, folders, files in os.walk("/dev"):
        folders[:] = [name for name in folders if name not in ("pts", "shm", "mqueue")]
        for path in (os.path.join(parent, name) for name in files):
            with contextlib.suppress(OSError):
                mode = os.lstat(path).st_mode
                if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                    found.append(path)
    return found


def writable_settings():
    """Files of the kernel's own file systems that it may write to; nothing is written."""
    found, seen = [], 0
    for top in ("/proc/sys", "/proc/irq", "/proc/fs", "/proc/bus", "/proc/acpi", "/sys"):
        for parent, folders, files in os.walk(top):
            found += [path for name in files if os.access(path := os.path.join(parent, name), os.W_OK)]
            seen += len(files)
            if seen > _MOST_SETTINGS:
                folders.clear()
    return [*(path for path in ("/proc/sysrq-trigger", "/proc/kcore") if os.access(path, os.W_OK)), *found[:_MOST_TOLD]]


def _in_child(work):
    """What `work` returns in a child of its own, as text, so that this process stays as it is."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, str(work()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as answer:
        return answer.read()
