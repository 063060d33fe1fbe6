"""Processes that hold files in every way that a count has to notice, for the tests of what counts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.kernel import ending, process_tree

MIB = 1 << 20
NOBODY = 65534
_BEGIN = """
import ctypes, os, platform, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
folder = sys.argv[1]
def hold(name="held", mib=4):
    file = os.open(os.path.join(folder, name), os.O_CREAT | os.O_RDWR)
    os.write(file, os.urandom(mib * MIB))
    os.unlink(os.path.join(folder, name))
    return file
def ready():
    print("ready", flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(folder: Path, code: str) -> Iterator[list[int]]:
    """Runs it until it is `ready()`; its process and all below it."""
    with subprocess.Popen([sys.executable, "-c", _BEGIN + code, str(folder)], stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None
        said = popen.stdout.readline()
        try:
            assert said == b"ready\n"
            yield [popen.pid, *process_tree.descendants(popen.pid)]
        finally:
            ending.end_descendants(popen.pid)
            popen.kill()


def in_child(look: Callable[[], Any], *, uid: int | None = None) -> Any:
    """What it returns in a child of ours, which may be another user's."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            os.write(theirs, json.dumps(look()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return json.loads(said)
