"""The host's handle on a guest: start it on a tree, send it one request at a time, end it.

A reply counts only with the nonce of its request.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sandbox.contract import Command, Ended, Limits, Process, ProcessEnded, Sandbox
from sandbox.errors import DiskFull, means_disk_full
from sandbox.guest.wire import BadFrame, ChannelClosed, decode, encode
from tools.errors import workload_error
from tools.judging import disk, taking
from tools.judging.described import what_is_wrong
from tools.judging.folders import Folders
from tools.judging.tensors import BadTensorFile
from tools.plain_text import plain
from tools.tree_removal import remove_tree

_FREE_SOME = "Free some space and resume the run; what was proven is kept."
_LIMITS = {  # by the reason of an end: the kind of fault
    "output limit": "output_flood",
    "memory limit": "out_of_memory",
    "process limit": "too_many_processes",
    "disk limit": "disk_limit",
}
SPIN_S = 0.02  # until a reply to what is timed is waited for by sleeping
CHECK_TIMEOUT_S = 1200.0  # of waiting for what may compile itself: to be checked, or ready to be timed

Reply = TypeVar("Reply", bound=BaseModel)


@dataclass(frozen=True)
class Build:
    """One version of the target to run: a tree, an optional line of torch.compile, and its filled compile cache."""

    key: str  # names the contents: equal keys are equal code
    tree: Path
    cache: Path | None = None  # template of TORCHINDUCTOR and Triton caches; copied for every worker
    compile_options: dict[str, Any] | None = None
    handed_on: Path | None = None  # where it has no cache of its own yet: that of the build it was made from
    graph_breaks: int | None = None  # of torch.compile, while its cache was filled; None where that was not counted


class WorkerFault(Exception):
    """The target's code failed in a worker: a finding about that code. `kind` as in `tools/errors.py`."""

    def __init__(self, kind: str, message: str, where: str = "", ended: Ended | None = None) -> None:
        super().__init__(f"{message}{f' ({where})' if where else ''}")
        self.kind, self.message, self.where, self.ended = kind, message, where, ended

    @property
    def survived(self) -> bool:
        """Whether the process answers more, after what it could not."""
        return self.ended is None and self.kind not in ("hangs", "device_failed")

    @property
    def may_be_chance(self) -> bool:
        """Whether another process may have ended it: a stopping engine, a service manager, the out-of-memory killer."""
        return self.kind == "died" and self.ended is not None and self.ended.signal in (signal.SIGTERM, signal.SIGKILL)


@contextmanager
def blamed_on(entry: str) -> Iterator[None]:
    """What a reference worker fails of in here is the pristine entry's fault. Raises: WorkloadError."""
    try:
        yield
    except BadTensorFile as error:  # it swaps the file, or cuts it short
        message = f"it did not save what it was asked for: {error}"
        raise workload_error("interfered", message, "", entry, None) from error
    except WorkerFault as fault:
        raise workload_error(fault.kind, fault.message, fault.where, entry, fault.ended) from fault


@dataclass(frozen=True)
class Setting:
    """How all workers of a run are started."""

    sandbox: Sandbox
    python: str
    guest: Path  # read-only copy of sandbox/guest
    entry: str
    scratch: Path
    threads: int = 1
    limits: Limits = field(default_factory=Limits)
    start_timeout_s: float = 120.0
    toolchain: Path | None = None  # used once it is there, see `tools/judging/toolchain.py`
    original: Path | None = None  # where the user has the target; nothing is loaded from there
    check_timeout_s: float = CHECK_TIMEOUT_S
    budget_s: float = math.inf  # of all that will be judged


class Worker:
    """A started guest. `home` is the only folder it writes to; inputs are revealed in `inbox`, which it only reads."""

    def __init__(
        self,
        setting: Setting,
        build: Build,
        role: str = "worker",
        *,
        cpus: tuple[int, ...] | None = None,
        malloc: bool = True,
        poison: bool = False,
        compile_threads: int = 1,
        bytecode: bool = False,
        timeout_s: float | None = None,
        in_all: bool = False,
    ) -> None:
        """`bytecode`: it writes that of all it imports, to be kept. `timeout_s` is for one answer, or `in_all`: for all
        until it is `ready`, so that what compiles itself again for each input comes to an end.
        """
        self.setting, self.build, self.role = setting, build, role
        self.timeout_s = timeout_s or setting.start_timeout_s
        self._left_s = self.timeout_s if in_all else math.inf
        at = Folders.made(setting.scratch, role, setting.sandbox.promises().separate_users)
        self.root, self.home, self.inbox, self.outbox, self.cache = at.root, at.home, at.inbox, at.out, at.cache
        toolchain = setting.toolchain if setting.toolchain is not None and setting.toolchain.exists() else None
        at.fill(toolchain, build.cache, build.handed_on)
        self._revealed = 0
        argv = [setting.python, str(setting.guest / "bootstrap.py"), role, str(build.tree), setting.entry]
        self.process: Process = setting.sandbox.start(
            Command(
                argv=(*argv, *([str(setting.original)] if setting.original else [])),
                cwd=(build.tree / setting.entry).parent,
                role=role,
                env=at.environment(setting.threads, malloc, poison, compile_threads) | at.bytecode(toolchain, bytecode),
                readable=(setting.guest, build.tree, self.inbox, *([toolchain] if toolchain else [])),
                writable=(self.home,),
                cpus=cpus,
                limits=setting.limits,
            )
        )
        self._asked: str | None = None

    def reveal(self, source: Path) -> str:
        """Put a file, as `taking` leaves it, where this worker can read it; it could not know of it before."""
        self._revealed += 1
        shown = self.inbox / f"{self._revealed}"
        try:
            found = source.lstat()
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise WorkerFault("interfered", f"{source.name} is no longer what was taken over")
            os.link(source, shown, follow_symlinks=False)
        except OSError as error:
            if disk.is_of_the_machine(error):
                raise
            raise WorkerFault("interfered", f"its inbox is no longer what it was: {error.strerror}") from error
        return str(shown)

    @contextmanager
    def showing(self, source: Path) -> Iterator[str]:
        """For a while, show the bytes of a file of another worker, which may have made anything of its path.

        Raises: BadTensorFile, DiskFull, OSError.
        """
        shown = self.inbox / f"copy-{secrets.token_hex(8)}"
        try:
            with _disk_full_told(shown):
                taking.show(source, shown)
            yield str(shown)
        finally:
            shown.unlink(missing_ok=True)

    def hide(self) -> None:
        """Take back what was revealed last, once it has been read: no other process can find it there later."""
        with disk.in_the_hands_of_a_worker():
            (self.inbox / f"{self._revealed}").unlink(missing_ok=True)

    def ask(self, op: str, *, timeout_s: float | None = None, spin_s: float = 0.0, **arguments: Any) -> dict[str, Any]:
        """One request and its reply. Raises: WorkerFault."""
        self.begin(op, **arguments)
        return self.finish(timeout_s=timeout_s, spin_s=spin_s)

    def ask_for(self, form: type[Reply], op: str, **arguments: Any) -> Reply:
        """One request and its reply, which must be of that form. Raises: WorkerFault."""
        try:
            return form.model_validate(self.ask(op, **arguments))
        except ValidationError as error:
            raise WorkerFault("forged_reply", f"its answer to {op} is none: {what_is_wrong(error)}") from error

    def took_ns(self, op: str, **arguments: Any) -> int:
        """Nanoseconds, waited for as for a timed call: a host that spins leaves the other cores less, and work must
        cost the same in both. Raises: WorkerFault.
        """
        start = time.perf_counter_ns()
        self.ask(op, spin_s=SPIN_S, **arguments)
        return time.perf_counter_ns() - start

    def begin(self, op: str, **arguments: Any) -> None:
        """Send a request without waiting, so that two workers can do slow things side by side."""
        nonce = secrets.token_hex(8)
        try:
            self.process.channel.send({"op": op, "nonce": nonce, **arguments}, self.timeout_s)
        except (ProcessEnded, ChannelClosed, TimeoutError) as error:
            raise self._fault(error) from error
        self._asked = nonce

    def finish(self, *, timeout_s: float | None = None, spin_s: float = 0.0) -> dict[str, Any]:
        """The reply to the request last begun. Raises: WorkerFault."""
        begun, longest_s = time.monotonic(), max(0.0, min(timeout_s or self.timeout_s, self._left_s))
        try:
            reply = self.process.channel.receive(longest_s, spin_s=spin_s)
        except (ProcessEnded, ChannelClosed, BadFrame, TimeoutError) as error:
            raise self._fault(error) from error
        self._left_s -= time.monotonic() - begun
        return self._checked(reply)

    def ready(self) -> None:
        """From now on the time that it had `in_all` is for each answer."""
        self._left_s = math.inf

    def prepared_call(self, key: int) -> tuple[int, str, bytes]:
        """(key, nonce, request) of a call, made before its input is staged: nothing of ours lies between the two."""
        nonce = secrets.token_hex(8)
        return key, nonce, encode({"op": "call", "nonce": nonce, "key": key})

    def timed_call(self, prepared: tuple[int, str, bytes]) -> tuple[str, int]:
        """(digest, nanoseconds) of one call: from sending the request to holding the reply, on the host's clock."""
        _, nonce, request = prepared
        channel = self.process.channel
        try:
            start = time.perf_counter_ns()
            channel.send_frame(request, self.timeout_s)
            received = channel.receive_frame(self.timeout_s, spin_s=SPIN_S)
            elapsed = time.perf_counter_ns() - start
            reply = decode(received)
        except (ProcessEnded, ChannelClosed, BadFrame, TimeoutError) as error:
            raise self._fault(error) from error
        self._asked = nonce
        return str(self._checked(reply).get("digest")), elapsed

    def _checked(self, reply: dict[str, Any]) -> dict[str, Any]:
        if reply.pop("nonce", None) != self._asked:
            raise WorkerFault("forged_reply", "it answered something that was not asked")
        error = reply.get("error")
        if isinstance(error, dict):
            kind, message, where = (plain(error.get(name, "")) for name in ("kind", "message", "where"))
            raise self._unless_disk_full(WorkerFault(kind, message, where))
        if error is not None:
            raise WorkerFault("forged_reply", "it answered with an error that is none")
        return reply

    def _fault(self, error: Exception) -> WorkerFault:
        """What became of the process, in the words of the contract."""
        if isinstance(error, TimeoutError):
            self.stop()
            together = "" if self._left_s == math.inf else ", all answers together"
            return WorkerFault("hangs", f"no answer within {self.timeout_s:.0f} s{together}")
        if isinstance(error, BadFrame):
            self.stop()
            return WorkerFault("forged_reply", f"it wrote to the private channel: {error}")
        ended = error.ended if isinstance(error, ProcessEnded) else self.process.wait(2.0) or self.process.stop()
        kind = _LIMITS.get(ended.reason, "died")
        how = f"signal {ended.signal}" if ended.signal else f"exit status {ended.status}"
        detail = ended.reason if ended.reason in _LIMITS else f"it ended with {how}"
        if kind == "disk_limit":
            allowed = f"{(self.setting.limits.disk_bytes or 0) / 2**30:.3g} GiB"
            detail = f"it wrote more than the {allowed} that it may, or the last of the disk"
        return self._unless_disk_full(WorkerFault(kind, detail, ended=ended))

    def _unless_disk_full(self, fault: WorkerFault) -> WorkerFault:
        """Raises: DiskFull when that is what it failed of: no finding about the code."""
        number = fault.ended.signal if fault.ended is not None else None
        if disk.looks_full(fault.kind, fault.message, number) and disk.is_full(self.setting.scratch):
            self.close()  # with all that it has written: a candidate may itself have filled the disk
            if self.role == "reference" or disk.is_full(self.setting.scratch):
                message = f"The disk is full: a worker could not write to {self.home}."
                raise DiskFull(message, hint=_FREE_SOME) from fault
        return fault

    def tripped(self) -> set[str]:
        """What of clocks, synchronisation and the guest it says was replaced. Raises: WorkerFault."""
        changed = self.ask("tripwires").get("changed")
        return {plain(name) for name in changed} if isinstance(changed, list) else {"the tripwires"}

    def saved(self, name: str) -> Path:
        """Where `save` requests write; the host reads it afterwards."""
        return self.outbox / name

    def forget_saved(self) -> None:
        """Remove what it has saved and nobody took over."""
        with disk.in_the_hands_of_a_worker():
            for path in self.outbox.iterdir():
                path.unlink(missing_ok=True)

    def take(self, name: str, into: Path) -> Path:
        """Take over a tensor file that it was asked to save, as one of ours at `into`; the worker's is gone then.

        Raises: WorkerFault when it is not what was asked for, DiskFull, OSError of this machine.
        """
        try:
            with _disk_full_told(into):
                return taking.take(self.saved(name), into)
        except BadTensorFile as error:
            raise WorkerFault("interfered", f"it did not save what it was asked for: {error}") from error

    def keep(self, below_home: str, into: Path) -> Path:
        """Copy a folder that it wrote, such as `folders.CACHE`, once its process has ended, so that no part of the way
        there becomes a link meanwhile. Nothing where there is none.

        Raises: WorkerFault when it is larger than any honest one, DiskFull.
        """
        source, led_away = self.home, False
        for part in Path(below_home).parts:
            source /= part
            led_away = led_away or source.is_symlink()
        try:
            with _disk_full_told(into):
                into.mkdir(parents=True, exist_ok=True)
                if not led_away:
                    taking.copy_folder(source, into)
        except taking.TooMuch as error:
            remove_tree(into)
            raise WorkerFault("cache_too_large", str(error)) from error
        except (DiskFull, OSError):
            remove_tree(into)
            raise
        return into

    def stop(self) -> Ended:
        return self.process.stop()

    def close(self) -> None:
        """End the process and remove its folders."""
        try:
            self.stop()
        finally:
            with contextlib.suppress(OSError):  # what is left goes with the scratch folder of the run
                remove_tree(self.root)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _disk_full_told(into: Path) -> Iterator[None]:
    """Raises: DiskFull where there is no room for what is written to `into`."""
    try:
        yield
    except OSError as error:
        if means_disk_full(error.errno):
            raise DiskFull(f"The disk is full: {into} could not be written.", hint=_FREE_SOME) from error
        raise
