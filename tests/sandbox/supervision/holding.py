"""Processes that hold memory and files, for the tests of what counts them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.kernel import ending, process_tree

MIB = 1 << 20
_BEGIN = """
import os, sys, time
MIB = 1 << 20
folder = sys.argv[1]
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
