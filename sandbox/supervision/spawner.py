"""Start supervisors, from one thread that lives as long as the agent, and read what they report.

Does not start them from the caller's thread: the kernel tells a child of its parent's death when the *thread*
that started it ends, so a supervisor started by a short-lived worker thread would end its command too early.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.contract import Ended
from sandbox.errors import SandboxError, Unusable

_SCRIPT = Path(__file__).with_name("supervisor.py")  # of a command that is started here
_START_TIMEOUT_S = 60.0  # it takes 0.05 s; a machine that swaps may take long


class Started(BaseModel):
    model_config = ConfigDict(extra="forbid")
    child: int | None  # of the supervisor, where it has one


class Failed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    stage: str
    error_number: int
    text: str


class Report(BaseModel):
    """One line from a supervisor; exactly one field is set."""

    model_config = ConfigDict(extra="forbid")
    started: Started | None = None
    failed: Failed | None = None
    ended: Ended | None = None


class Supervisor:
    """A running supervisor, seen from the agent. Not for two threads at once; `SupervisedProcess` holds the lock."""

    def __init__(self, popen: subprocess.Popen[bytes], reports: int) -> None:
        self._popen, self._reports = popen, reports
        os.set_blocking(reports, False)
        self._unread = b""
        self.closed = False  # it will say nothing more
        self.child: int | None = None  # the process that it has started, where it starts one

    @property
    def pid(self) -> int:
        return self._popen.pid

    def fileno(self) -> int:
        return self._reports

    def next_report(self, timeout_s: float) -> Report | None:
        """The next line; None when none came in time, or when none will come (`closed`). Raises: SandboxError."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread and not self.closed:
            with contextlib.suppress(BlockingIOError):
                part = os.read(self._reports, 1 << 16)
                self.closed = not part
                self._unread += part
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            select.select([self._reports], [], [], left)
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return Report.model_validate_json(line) if line else None
        except ValidationError as error:
            raise SandboxError(f"the supervisor of a sandboxed command sent nonsense: {line[:200]!r}") from error

    def ask_to_end(self) -> None:
        self._popen.terminate()

    def kill(self) -> None:
        self._popen.kill()

    def send(self, text: str) -> None:
        """Nothing happens once it was let go."""
        assert self._popen.stdin is not None
        if not self._popen.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # it was killed, which the reports tell
                self._popen.stdin.write(text.encode() + b"\n")
                self._popen.stdin.flush()

    def dismiss(self, timeout_s: float) -> None:
        """Let it go: it has been heard, and what it would clear away is ours to clear away. Idempotent."""
        self.send("heard")
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        reports, self._reports, self.closed = self._reports, -1, True
        if reports >= 0:
            os.close(reports)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)


class Asked(Protocol):
    """What a supervisor is told to do, as one JSON object."""

    @property
    def argv(self) -> Sequence[str]: ...

    def _asdict(self) -> dict[str, Any]: ...


def start(order: Asked, log: Path, *, script: Path | None = None, descriptors: Sequence[int] = ()) -> Supervisor:
    """Have a supervisor start this command; returns once it is executed. `log` gets the supervisor's own complaints.

    `script` is another supervisor than the usual one, which understands `order`, and `descriptors` are passed to it.

    Raises: Unusable when the command cannot be started; SandboxError when the supervisor itself fails; OSError.
    """
    ours, theirs = os.pipe()
    with log.open("wb") as complaints:
        try:
            popen = _thread().submit(_spawn, script or _SCRIPT, theirs, complaints, descriptors).result()
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
    return begun(Supervisor(popen, ours), order, log)


def begun(supervisor: Supervisor, order: Asked, log: Path) -> Supervisor:
    """The same, once it says that it has executed the command. Raises: Unusable, SandboxError."""
    supervisor.send(json.dumps(order._asdict()))
    report = supervisor.next_report(_START_TIMEOUT_S)
    if report is not None and report.started is not None:
        supervisor.child = report.started.child
        return supervisor
    supervisor.kill()
    supervisor.dismiss(10.0)
    if report is not None and report.failed is not None:
        stage, text = report.failed.stage, report.failed.text
        what = f"{order.argv[0]} cannot be executed" if stage == "exec" else f"starting failed at its {stage}"
        raise Unusable(stage, f"{what}: {text}", error_number=report.failed.error_number)
    said = log.read_text(errors="replace").strip().splitlines()
    reason = said[-1] if said else "no reason given"
    raise SandboxError(f"the supervisor of a sandboxed command did not start: {reason}")


def _spawn(script: Path, reports: int, complaints: IO[bytes], passed: Sequence[int]) -> subprocess.Popen[bytes]:
    # the agent's environment may hold keys, and what the supervisor has its command could read
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), str(reports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        pass_fds=(reports, *passed),
        env=kept,
        start_new_session=True,  # Ctrl-C in the terminal is the agent's to handle
    )


_lock = threading.Lock()
_executor: ThreadPoolExecutor | None = None


def _thread() -> ThreadPoolExecutor:
    """The one thread that starts supervisors. It ends with the interpreter, and then so do they."""
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="supervisor-spawner")
        return _executor


def _forget_thread() -> None:
    global _executor, _lock
    _executor, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_thread)  # a forked child has no such thread, only the memory of one
