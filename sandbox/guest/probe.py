"""Tell what can be seen and done from inside, on the bare interpreter, before any code of the target is started.

Judges nothing: the host compares it with what it asked for. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys

from .wire import connect

NOT_DEVICES = ("/dev/pts", "/dev/shm", "/dev/mqueue")
HOST_SETTINGS = ("/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper")
NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
LIMITS = {"core": resource.RLIMIT_CORE, "fsize": resource.RLIMIT_FSIZE}
CGROUP_FILES = {
    "memory": ("memory/memory.limit_in_bytes", "memory.max"),
    "swap": ("memory/memory.memsw.limit_in_bytes", "memory.swap.max"),
    "processes": ("pids/pids.max", "pids.max"),
}


def _text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def _fields(process):
    return dict(line.partition(":")[::2] for line in (_text("/proc/" + process + "/status") or "").splitlines())


def _status():
    wanted = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups")
    return {name: value.split() for name, value in _fields("self").items() if name in wanted}


def _others():
    """Processes that are neither this one nor one that it comes from."""
    own, process = {"0"}, "self"
    while True:
        fields = _fields(process)
        if process == "self":
            own.add(fields.get("Pid", "0").strip())
        process = fields.get("PPid", "0").strip()
        if process in own:
            break
        own.add(process)
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and name not in own)


def _cpus(wanted):
    """Those it can get when it asks for all of these."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, wanted)
    return sorted(os.sched_getaffinity(0))


def _namespaces():
    found = {}
    for name in NAMESPACES:
        with contextlib.suppress(OSError):
            found[name] = os.stat("/proc/self/ns/" + name).st_ino
    return found


def _can_write(folder):
    """Whether a file can be made in it; it is removed again."""
    path = os.path.join(folder, ".ratchet-probe")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    os.unlink(path)
    return True


def _size(folder):
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def _cgroups():
    found = {}
    for name, places in CGROUP_FILES.items():
        texts = [_text("/sys/fs/cgroup/" + place) for place in places]
        found[name] = next((text.strip() for text in texts if text is not None), None)
    return found


def _nodes():
    """Every device and socket below /dev, terminals left out."""
    found = []
    for parent, folders, files in os.walk("/dev"):
        folders[:] = [name for name in folders if os.path.join(parent, name) not in NOT_DEVICES]
        found += [os.path.join(parent, name) for name in files if not os.path.islink(os.path.join(parent, name))]
    return sorted(found)


def _identity(path):
    """Device and inode; None for what cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_dev, found.st_ino]


def facts(asked):
    """`asked` names folders ("readable", "writable", "hidden") and "cpus" to ask for."""
    return {
        "status": _status(),
        "namespaces": _namespaces(),
        "environment": sorted(os.environ),
        "interfaces": sorted(
            line.partition(":")[0].strip() for line in (_text("/proc/net/dev") or "").splitlines()[2:]
        ),
        "processes": _others(),
        "cpus": _cpus(asked["cpus"]),
        "limits": {name: list(resource.getrlimit(number)) for name, number in LIMITS.items()},
        "cgroups": _cgroups(),
        "sizes": {folder: _size(folder) for folder in ("/tmp", "/dev/shm")},
        "nodes": _nodes(),
        "written": [
            folder for folder in ("/", "/etc", "/usr", *asked["readable"], *asked["writable"]) if _can_write(folder)
        ],
        "seen": {path: found for path in asked["hidden"] if (found := _identity(path)) is not None},
        "host_settings": [path for path in HOST_SETTINGS if os.access(path, os.W_OK)],
    }


def main():
    channel = connect(os.environ["RATCHET_CHANNEL"])
    channel.send({"facts": facts(json.loads(sys.argv[1]))})
    channel.receive()
