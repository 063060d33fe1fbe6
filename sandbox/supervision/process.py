"""One running command: its channel, its freezer, what it uses, and its end.

The command is not trusted: the channel is accepted only from its tree, and the supervisor reports its end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox.contract import Ended, ProcessEnded, Task, Usage, WouldNotFreeze
from sandbox.errors import SandboxError
from sandbox.guest.wire import Channel
from sandbox.kernel import cgroup, ending, process_tree
from sandbox.kernel.freezer import patience_s
from sandbox.supervision import records
from sandbox.supervision.control_groups import ControlGroups
from sandbox.supervision.records import Identity, Record
from sandbox.supervision.spawner import Supervisor

ENGINE_LOST = "engine lost"  # the engine that ran the command does not tell how it ended
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_STOP_TIMEOUT_S = 15.0  # the supervisor gives up after 10 s on what is stuck in a driver
_STILL_NS = 500_000  # what the kernel itself may do in a stopped process
_SETTLES_S = 0.0001  # between two looks at what it has run
_PIN_LOOKS = 50  # a process that widens its affinity again and again is the referee's to find
_LAST_WORDS_S = 1.0  # after a process let go of its channel: closing an accelerator may take most of a second


@dataclass(frozen=True)
class Tree:
    """Where a command's processes are: all of them below `root`.

    `root` itself is one of them where it lives under the command's own user, who may find a way into it.
    """

    root: Identity
    with_root: bool = False

    def members(self) -> list[int]:
        if not self.root.alive:  # its pid may be another's by now
            return []
        below = process_tree.descendants_quickly(self.root.pid)
        return [self.root.pid, *below] if self.with_root else below

    def everything(self, processes: dict[int, process_tree.Stat]) -> list[int]:
        """The same from a scan of all processes, so that nothing hides."""
        below = process_tree.descendants(self.root.pid, processes)
        return [self.root.pid, *below] if self.with_root and self.root.pid in processes else below


class SupervisedProcess:
    """See `contract.Process`. All methods may be called from any thread."""

    def __init__(
        self,
        record: Record,
        supervisor: Supervisor,
        tree: Tree,
        listener: socket.socket,
        groups: ControlGroups,
        connect_timeout_s: float,
        complete: Callable[[Ended], Ended],
        own_uid: int | None,
    ) -> None:
        """`own_uid` is a user id that nothing but this command has. For `complete` see `Starting.running`."""
        self.role = record.role
        self._record, self._supervisor, self._tree, self._listener = record, supervisor, tree, listener
        self._groups, self._complete, self._own_uid = groups, complete, own_uid
        self._connect_timeout_s = connect_timeout_s
        self._listener.setblocking(False)  # whoever ends it may be quicker to accept
        self._socket: socket.socket | None = None
        self._unheard: socket.socket | None = None
        self._channel: Channel | None = None
        self._reported: Ended | None = None
        self._ended: Ended | None = None
        self._cpu_time_s = 0.0
        self._frozen_at_ns: dict[int, int] | None = None
        self._connecting, self._ending = threading.Lock(), threading.RLock()

    @property
    def pid(self) -> int:
        """The supervisor's."""
        return self._supervisor.pid

    @property
    def channel(self) -> Channel:
        with self._connecting:
            if self._channel is None:
                self._socket = self._accept()
                self._channel = Channel(self._socket)
            return self._channel

    def _accept(self) -> socket.socket:
        deadline = time.monotonic() + self._connect_timeout_s
        while True:
            ended = self.poll()
            if ended is not None:
                if self._unheard is not None and self._is_ours(self._unheard):
                    return self._unheard
                raise ProcessEnded(ended)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self.role} did not connect within {self._connect_timeout_s:.0f} s")
            peer = self._waiting(min(left, 0.5))  # in slices: another thread may stop it meanwhile
            if peer is not None and self._is_ours(peer):
                self._stop_listening()
                return _Peer(fileno=peer.detach())
            if peer is not None:
                peer.close()  # someone else of the same user found the socket

    def _waiting(self, timeout_s: float) -> socket.socket | None:
        """Who waits to be accepted; None also when a report came instead."""
        try:
            listener, reports = self._listener.fileno(), self._supervisor.fileno()
            if listener in select.select([listener, reports], [], [], timeout_s)[0]:
                return self._listener.accept()[0]
        except (OSError, ValueError):
            if self.poll() is None:
                raise
        return None

    def _is_ours(self, peer: socket.socket) -> bool:
        pid, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        # The first process may have ended already. Ids are given out in turn: another process gets its id only after
        # all others were given out, and can connect only as the same user.
        return uid == self._own_uid or pid in (self._supervisor.child, *process_tree.descendants(self._tree.root.pid))

    def _stop_listening(self) -> None:
        Path(self._listener.getsockname()).unlink(missing_ok=True)
        self._listener.close()

    def _close_listener(self) -> None:
        if self._listener.fileno() < 0:
            return
        if select.select([self._listener], [], [], 0.0)[0]:  # it connected, spoke and ended before anybody asked
            self._unheard = _Peer(fileno=self._listener.accept()[0].detach())
        self._stop_listening()

    def freeze(self) -> None:
        with self._ending:
            if self._ended is None:
                self._groups.freezer.freeze(self.members)
                self._frozen_at_ns = self._settled_ns()

    def thaw(self) -> None:
        with self._ending:
            if self._ended is None:
                ran_ns = self._ran_while_frozen_ns()
                self._groups.freezer.thaw(self.members)
                if ran_ns > _STILL_NS:
                    raise WouldNotFreeze(f"it ran for {ran_ns / 1e6:.1f} ms while it was stopped")

    def _settled_ns(self) -> dict[int, int]:
        """How long each thread has run, once two readings agree: one may miss a process, or come before a thread has
        left its CPU where the kernel may not be asked for that. Raises: WouldNotFreeze.
        """
        begun, before, ran_ns = time.monotonic(), None, process_tree.ran_ns(self.members())
        while ran_ns != before:
            if time.monotonic() - begun > patience_s():
                raise WouldNotFreeze("it goes on though it was stopped")
            time.sleep(_SETTLES_S)
            before, ran_ns = ran_ns, process_tree.ran_ns(self.members())
        return ran_ns

    def _ran_while_frozen_ns(self) -> int:
        before, self._frozen_at_ns = self._frozen_at_ns, None
        if before is None:
            return 0
        now = process_tree.ran_ns(self.members())
        return sum(max(0, ran - before.get(task, 0)) for task, ran in now.items())

    def usage(self) -> Usage:
        with self._ending:
            if self.poll() is not None:
                return Usage((), self._cpu_time_s)
            processes = process_tree.every_process()
            frozen = self._groups.freezer.holds()
            tasks = [
                task
                for pid in self._tree.everything(processes)
                if processes[pid].alive
                for task in _tasks(pid, pid in frozen)
            ]
            used = self._groups.freezer.cpu_time_s()
            if used is None:
                root = self._tree.root.pid
                used = process_tree.cpu_time_s(root, () if self._tree.with_root else (root,), processes)
            self._cpu_time_s = max(self._cpu_time_s, used)
            return Usage(tuple(tasks), self._cpu_time_s)

    def pin(self, cpus: tuple[int, ...]) -> None:
        """Move all of it to these CPUs; where the kernel enforces them it cannot leave again.

        Raises: OSError when these CPUs are not there for us.
        """
        with self._ending:
            if self._ended is not None:
                return
            if self._groups.cpuset is not None:
                self._groups.cpuset.allow(cpus)
            moved: set[int] = set()
            for _ in range(_PIN_LOOKS):  # a task that was just born may still have its parent's old affinity
                tasks = [tid for pid in self.members() for tid in process_tree.threads(pid)]
                outside = [tid for tid in tasks if tid not in moved or not _is_on(tid, cpus)]
                if not outside:
                    return
                for tid in outside:
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(tid, cpus)
                moved.update(outside)

    def members(self) -> list[int]:
        """Every process of the command; ours left out."""
        return self._tree.members()

    def poll(self) -> Ended | None:
        return self.wait(0.0)

    def wait(self, timeout_s: float) -> Ended | None:
        """Like `poll`, but gives it time to end."""
        with self._ending:
            if self._ended is None:
                self._wait_for_report(timeout_s)
            return self._ended

    def stop(self) -> Ended:
        with self._ending:
            if self._is_ending():
                self._wait_for_report(_LAST_WORDS_S)
            if self._ended is None:
                self._supervisor.ask_to_end()
                self._wait_for_report(_STOP_TIMEOUT_S)
            if self._ended is None:
                self._finish(None)
            assert self._ended is not None
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # whoever still uses the channel finds it closed
            return self._ended

    def _is_ending(self) -> bool:
        """Whether it has let go of its channel: then its own end, with its status, is worth a moment's wait."""
        if self._ended is not None or self._socket is None:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return self._socket.fileno() >= 0  # reset by the other side, rather than closed by ours

    def _wait_for_report(self, timeout_s: float) -> None:
        report = None if self._reported else self._supervisor.next_report(timeout_s)
        if self._reported is not None or report is not None or self._supervisor.closed:
            self._finish(None if report is None else report.ended)

    def _finish(self, ended: Ended | None) -> None:
        """Bury the supervisor and remove every trace; without a report, first end what it could not."""
        if self._reported is None:
            self._reported = ended or self._end_without_supervisor()
        lost = None
        try:
            ended = self._complete(self._reported)
        except SandboxError as error:
            lost = error
            ended = replace(self._reported, reason=ENGINE_LOST)
            ending.kill(self.members())
        self._ended = ended  # first: whoever comes after an interruption asks a supervisor no more
        try:
            self._supervisor.dismiss(5.0)
        finally:
            self._clear_away(ended)
        if lost is not None:
            raise lost

    def _clear_away(self, ended: Ended) -> None:
        used = None
        try:
            with contextlib.suppress(OSError):
                used = self._groups.freezer.cpu_time_s()
            self._cpu_time_s = max(self._cpu_time_s, ended.cpu_time_s if used is None else used)
        finally:
            try:
                self._groups.close()
            finally:
                self._close_listener()
        if ended.reason != ENGINE_LOST:  # its record stays: someone may still have to end it
            self._record.forget()

    def _end_without_supervisor(self) -> Ended:
        """Its death took the command along; what the command had started elsewhere is found by group and by mark."""
        reason = "stopped" if not self._supervisor.closed else "supervisor killed"
        ending.kill(self.members())
        self._supervisor.kill()
        for folder in self._groups.folders:
            cgroup.end_group(folder)
        records.end_marked(self._record.channel)
        return Ended(None, signal.SIGKILL, reason, "", cpu_time_s=self._cpu_time_s)


class _Peer(socket.socket):
    """The channel's socket. A channel may outlive its process, so nobody is warned when it is left to be collected."""

    def __del__(self) -> None:
        self.close()


def _tasks(pid: int, frozen: bool) -> list[Task]:
    tasks = []
    for tid in process_tree.threads(pid):
        thread = process_tree.stat(pid, tid)
        if thread is not None and thread.state not in "ZX":
            cpus = process_tree.allowed_cpus(pid, tid)
            tasks.append(Task(pid, tid, cpus, thread.nice, thread.policy, frozen or thread.cannot_run))
    return tasks


def _is_on(tid: int, cpus: tuple[int, ...]) -> bool:
    try:
        return os.sched_getaffinity(tid) <= set(cpus)
    except ProcessLookupError:
        return True
