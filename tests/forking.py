"""A sandbox for tests that judge logic, not containment: commands are forked from one warm process.

A start takes some 30 ms where a fresh interpreter that imports torch takes 2 s. It holds the contract of
`sandbox/contract.py` as far as starting, the channel, freezing, usage and ending go, and contains nothing: no user ids,
no namespaces, no control groups, and of the limits only those on output, and on the size of a file.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from sandbox import choose
from sandbox.contract import Command, Ended, ProcessEnded, Promises, Sandbox, Task, Usage
from sandbox.errors import Unusable
from sandbox.guest.wire import Channel
from sandbox.kernel import process_tree
from sandbox.kernel.freezer import SignalFreezer
from tools.judging import open_referee

ADDRESS = "RATCHET_TEST_WARM_PARENT"  # of the one that another process has started, for its children
NOTE = "local is not containment: this is a fork of a process of the tests"
# of a worker, as far as libraries read it when they are imported
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LANG": "C.UTF-8",
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")},
    "TORCHINDUCTOR_BUNDLE_TRITON_INTO_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
_START_S, _CONNECT_S, _STOP_S = 120.0, 60.0, 15.0
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


class ForkingSandbox:
    """Commands that are a Python script for `python` are forked; others are executed from such a fork."""

    name = "local"

    def __init__(self, python: str | Path = sys.executable) -> None:
        self._python = str(python)

    def promises(self) -> Promises:
        return Promises(
            contained=False,
            no_network=False,
            separate_users=False,
            ends_whole_tree=True,
            enforced_cpus=False,
            kernel_limits=False,
            notes=(NOTE,),
        )

    def start(self, command: Command) -> ForkedProcess:
        """Raises: Unusable when it cannot be executed."""
        folder = Path(tempfile.mkdtemp(prefix="ratchet-fork-"))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(folder / "channel"))
        listener.listen(1)
        order = {
            "python": self._python,
            "argv": command.argv,
            "cwd": str(command.cwd),
            "env": {**command.env, "RATCHET_CHANNEL": str(folder / "channel")},
            "cpus": command.cpus,
            "output_bytes": command.limits.output_bytes,
            "file_bytes": command.limits.file_bytes,
        }
        watcher = Watcher(order)
        try:
            told = watcher.next(_START_S)
            if "failed" in told:
                raise Unusable("exec", f"{command.argv[0]} cannot be executed: {told['failed']}")
        except BaseException:
            watcher.close()
            listener.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return ForkedProcess(command.role, watcher, told["started"], listener)

    def reap(self) -> list[str]:
        return []


class Watcher:
    """The connection to the process that watches a command."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(warm_parent())
        self._socket.sendall(json.dumps(order).encode() + b"\n")
        self._unread = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def next(self, timeout_s: float) -> dict[str, Any]:
        """Empty when nothing came in time. Raises: ConnectionError when it has gone."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            if not select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return {}
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionError("the warm process is gone")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def ask_to_end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class ForkedProcess:
    """See `contract.Process`."""

    def __init__(self, role: str, watcher: Watcher, watcher_pid: int, listener: socket.socket) -> None:
        self.role, self.pid = role, watcher_pid
        self._watcher, self._listener = watcher, listener
        self._channel: Channel | None = None
        self._peer: socket.socket | None = None
        self._ended: Ended | None = None
        self._cpu_time_s = 0.0
        self._freezer = SignalFreezer()
        self._connecting, self._ending = threading.Lock(), threading.RLock()

    @property
    def channel(self) -> Channel:
        with self._connecting:
            if self._channel is None:
                self._peer = self._accept()
                self._channel = Channel(self._peer)
            return self._channel

    def _accept(self) -> socket.socket:
        deadline = time.monotonic() + _CONNECT_S
        while time.monotonic() < deadline:
            if select.select([self._listener, self._watcher], [], [], 0.5)[0]:
                if select.select([self._listener], [], [], 0.0)[0]:
                    return _Peer(fileno=self._listener.accept()[0].detach())
                ended = self.poll()
                if ended is not None:
                    raise ProcessEnded(ended)
        raise TimeoutError(f"{self.role} did not connect within {_CONNECT_S:.0f} s")

    def members(self) -> list[int]:
        return process_tree.descendants_quickly(self.pid)

    def freeze(self) -> None:
        with self._ending:
            if self.poll() is None:
                self._freezer.freeze(self.members)

    def thaw(self) -> None:
        with self._ending:
            if self._ended is None:
                self._freezer.thaw(self.members)

    def usage(self) -> Usage:
        with self._ending:
            if self.poll() is not None:
                return Usage((), self._cpu_time_s)
            processes = process_tree.every_process()
            alive = [pid for pid in process_tree.descendants(self.pid, processes) if processes[pid].alive]
            self._cpu_time_s = max(self._cpu_time_s, process_tree.cpu_time_s(self.pid, {self.pid}, processes))
            return Usage(tuple(task for pid in alive for task in _tasks(pid)), self._cpu_time_s)

    def pin(self, cpus: tuple[int, ...]) -> None:
        for tid in [tid for pid in self.members() for tid in process_tree.threads(pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(tid, cpus)

    def poll(self) -> Ended | None:
        return self.wait(0.0)

    def wait(self, timeout_s: float) -> Ended | None:
        with self._ending:
            told = {} if self._ended is not None else self._watcher.next(timeout_s)
            if told:
                self._finish(**told["ended"])
            return self._ended

    def stop(self) -> Ended:
        with self._ending:
            if self._let_go():
                self.wait(1.0)
            if self._ended is None:
                self._watcher.ask_to_end()
            ended = self.wait(_STOP_S)
            assert ended is not None, "it could not be ended"
            return ended

    def _let_go(self) -> bool:
        """Whether it has closed its channel: then its own end, with its status, is worth a moment's wait."""
        try:
            return self._peer is not None and self._peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError:
            return False

    def _finish(self, cpu_time_s: float, **how: Any) -> None:
        self._ended, self._cpu_time_s = Ended(**how), max(self._cpu_time_s, cpu_time_s)
        shutil.rmtree(Path(self._listener.getsockname()).parent, ignore_errors=True)
        self._watcher.close()
        self._listener.close()
        if self._peer is not None:
            with contextlib.suppress(OSError):
                self._peer.shutdown(socket.SHUT_RDWR)


class _Peer(socket.socket):
    """A channel may outlive its process, so nobody is warned when it is left to be collected."""

    def __del__(self) -> None:
        self.close()


def _tasks(pid: int) -> Iterator[Task]:
    for tid in process_tree.threads(pid):
        thread = process_tree.stat(pid, tid)
        if thread is not None and thread.state not in "ZX":
            cpus = process_tree.allowed_cpus(pid, tid)
            yield Task(pid, tid, cpus, thread.nice, thread.policy, thread.cannot_run)


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
