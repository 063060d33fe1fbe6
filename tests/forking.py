"""A sandbox for tests that judge logic, not containment: commands are forked from one warm process.

A start takes some 30 ms where a fresh interpreter that imports torch takes 2 s. It is the provider `local` without
separate users and control groups, but for the supervisor: that is forked as well, and forks its command.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

from sandbox import choose
from sandbox.contract import Promises, Sandbox
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import spawner
from sandbox.supervision.spawner import Supervisor
from sandbox.supervision.supervisor import Order
from tools.judging import open_referee

ADDRESS = "RATCHET_TEST_WARM_PARENT"  # of the one that another process has started, for its children
PROMISES = Promises(
    contained=False,
    no_network=False,
    separate_users=False,
    ends_whole_tree=True,
    enforced_cpus=False,
    kernel_limits=False,
    notes=("local is not containment: this is a fork of a process of the tests",),
)
# of a worker, as far as libraries read it when they are imported
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LANG": "C.UTF-8",
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")},
    "TORCHINDUCTOR_BUNDLE_TRITON_INTO_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
_lock = threading.Lock()


def warm_parent() -> str:
    """The address of the warm process, which is started when it is first needed and ends with this one."""
    with _lock:
        if ADDRESS not in os.environ:
            folder = Path(tempfile.mkdtemp(prefix="ratchet-warm-"))
            address = str(folder / "socket")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(address)
                listener.listen(64)
                given = listener.fileno()
                script = Path(__file__).with_name("warm_parent.py")
                command = [sys.executable, str(script), str(given)]
                parent = subprocess.Popen(
                    command, stdin=subprocess.PIPE, env=ENVIRONMENT, pass_fds=(given,), start_new_session=True
                )
            atexit.register(_end, parent, folder)
            os.environ[ADDRESS] = address
        return os.environ[ADDRESS]


def _end(parent: subprocess.Popen[bytes], folder: Path) -> None:
    parent.kill()
    parent.wait()
    shutil.rmtree(folder, ignore_errors=True)


class ForkingSandbox(LocalSandbox):
    """Commands that are a Python script for `python` are forked; others are executed from such a fork."""

    def __init__(self, python: str | Path = sys.executable) -> None:
        super().__init__(python, Path(warm_parent()).with_name("scratch"))
        self._users, self._kinds, self._promises = False, frozenset(), PROMISES

    def _spawn(self, order: Order, log: Path) -> Supervisor:
        forked = Forked(self._python)
        try:
            supervisor = Supervisor(cast(Any, forked), os.dup(forked.connection.fileno()))
            return spawner.begun(supervisor, order._replace(host_pid=forked.parent), log)
        except BaseException:  # a run that is being stopped
            forked.close()
            raise


class Forked:
    """A supervisor that the warm process has forked, as far as it is like a `Popen`."""

    def __init__(self, python: str) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stdin = self.connection.makefile("wb")
        try:
            self.connection.connect(warm_parent())
            self.stdin.write(f"{python}\n".encode())
            self.stdin.flush()
            self.pid, self.parent = map(int, self.connection.recv(100).split())
        except BaseException:
            self.close()
            raise

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float) -> None:
        """The warm process does."""
        self.connection.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.stdin.close()
        self.connection.close()


@contextlib.contextmanager
def chosen() -> Iterator[None]:
    """While it lasts, the sandbox `local` of this interpreter is this one, and installed packages are not watched.

    Listing them takes a tenth of a second, many times in a run.
    """
    make = choose.make

    def make_forking(name: choose.Name, wanted: choose.Wanted) -> Sandbox:
        own = name == "local" and wanted.image is None and str(wanted.python) == sys.executable
        return ForkingSandbox(wanted.python) if own else make(name, wanted)

    with mock.patch.object(choose, "make", make_forking), unwatched_packages():
        yield


def unwatched_packages() -> contextlib.AbstractContextManager[object]:
    return mock.patch.object(open_referee, "installed", lambda *_: [])
