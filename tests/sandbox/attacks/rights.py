"""Checks that a command is nobody and may nothing: capabilities, users, mounts, devices, the kernel's settings.

Nothing is tried whose success would outlive the guest, or would change this machine.
"""

from __future__ import annotations

import os
import shutil
import stat

from tests.sandbox.attacks.bench import Bench, checks_in, claim

_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_USUAL_DEVICES = frozenset(
    f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero", "ptmx", "console")
)
# Each namespace has its own of these, so that nobody else's change; that the namespaces are its own, others check.
_OF_NAMESPACES = (
    *("/proc/sys/fs/mqueue/", "/proc/sys/net/", "/proc/sys/user/"),
    *(f"/proc/sys/kernel/{name}" for name in ("auto_msgmni", "msg", "ns_last_pid", "pid_max", "sem", "shm")),
)
_PLAIN = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK, stat.S_ISFIFO)


@claim("it has no capability, and could not get one", "no rights")
def capabilities(bench: Bench) -> object:
    told = bench.ask("status")
    return [f"{name} {told[name][0]}" for name in _SETS if told[name][0].strip("0")]


@claim("it is not root, nor in its group", "no rights")
def user(bench: Bench) -> object:
    told = bench.ask("status")
    return [name for name in ("Uid", "Gid", "Groups") if "0" in told[name]]


@claim("no program can give it new rights", "no new rights")
def new_privileges(bench: Bench) -> object:
    return bench.ask("status")["NoNewPrivs"] != ["1"]


@claim("a program with the set-user-id bit gives it no other user", "no new rights")
def set_user_id(bench: Bench) -> object:
    """One of ours in a folder that it may read, and one that it makes itself."""
    ours, its = bench.given / "id", bench.guest.kept / "id"
    if not bench.ask("copy_program", name="id", to=str(its)):
        return "there is no program `id` inside to try it with"
    shutil.copyfile(its, ours)
    ours.chmod(0o6755)
    try:
        own = bench.ask("status")["Uid"][1]
        became = {bench.ask("run", program=str(each), arguments=["-u"]).strip() for each in (ours, its)}
    finally:
        ours.unlink()
    return became != {own} and (f"it became {became}" if became - {own, ""} else "it does not run")


@claim("system calls are filtered", "system calls filtered")
def system_calls(bench: Bench) -> object:
    return bench.ask("status")["Seccomp"] != ["2"]


@claim("it cannot make a user namespace and be root there", "no namespaces of its own")
def user_namespace(bench: Bench) -> object:
    return bench.ask("new_user_namespace").strip("0")


@claim("it cannot mount anything", "no namespaces of its own")
def mounting(bench: Bench) -> object:
    return bench.ask("mount_on", folder=str(bench.guest.kept))


@claim("what it leaves in its folder are plain files, folders, links and pipes", "plain files")
def special_files(bench: Bench) -> object:
    bench.ask("make_special_files", folder=str(bench.guest.kept))
    modes = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in os.scandir(bench.guest.kept)}
    return [name for name, mode in modes.items() if not any(is_kind(mode) for is_kind in _PLAIN)]


@claim("it sees no device but those of every machine, and those that it was given", "usual devices")
def devices(bench: Bench) -> object:
    return set(bench.ask("devices")) - _USUAL_DEVICES


@claim("the kernel's settings cannot be written to", "kernel settings")
def settings(bench: Bench) -> object:
    return [path for path in bench.ask("writable_settings") if not path.startswith(_OF_NAMESPACES)]


CHECKS = checks_in(globals())
