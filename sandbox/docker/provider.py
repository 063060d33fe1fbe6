"""The docker provider: each command in its own container, with nothing but what it is given.

Nothing runs when a control that was asked for is not found from inside. Unless an image is named, its containers show
this machine's own programs and the target's interpreter, read-only, on an empty image: nothing needs to be built.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from sandbox import counters, verification, view
from sandbox.contract import Command, Ended, Promises
from sandbox.devices import access, sysfs
from sandbox.devices.access import Access
from sandbox.devices.record import Gpu
from sandbox.docker import container, image_check, watcher
from sandbox.docker.container import Outside
from sandbox.docker.engine import Engine, owner_lives
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.kernel import cgroup, process_tree
from sandbox.kernel.freezer import SignalFreezer
from sandbox.supervision import records, spawner, user_ids
from sandbox.supervision.control_groups import ControlGroups
from sandbox.supervision.process import SupervisedProcess, Tree
from sandbox.supervision.records import Identity
from sandbox.supervision.starting import Place, starting

_WATCHER = Path(watcher.__file__)
_NOTICED_S = 10.0  # an engine takes some milliseconds to see that a container has ended
_NOTES = (
    "a container shares the kernel with this machine: a fault of the kernel, or of a device driver that is passed in, "
    "is a way out",
)


class DockerSandbox:
    """Runs commands in containers of this machine's engine.

    `python` is the interpreter that commands will use. `scratch` and `owned` are as for `LocalSandbox`. `image` is an
    image to use instead of this machine's own software; `python` is then looked up in it. `mounts` are further
    folders that every command may read, and `gpu` is the one GPU that it sees.
    """

    name = "docker"

    def __init__(
        self,
        python: str | Path,
        scratch: Path,
        *,
        owned: tuple[Path, ...] = (),
        image: str | None = None,
        mounts: tuple[Path, ...] = (),
        gpu: Gpu | None = None,
        connect_timeout_s: float = 60.0,
    ) -> None:
        self._python = self._inside = str(python) if image else os.path.abspath(python)
        self._image, self._mounts, self._gpu = image, mounts, gpu
        self._place = Place(scratch.absolute(), (scratch.absolute(), *owned), connect_timeout_s)
        self._user_ids = user_ids.fresh_ids()
        self._settling = threading.Lock()
        self._settled: tuple[Engine, str, tuple[Path, ...]] | None = None
        self._promises: Promises | None = None

    def promises(self) -> Promises:
        """Raises: SandboxUnavailable, SandboxError (ContainmentNotHeld, ImageUnusable)."""
        with self._settling:
            if self._promises is None:
                given = self._access()
                verification.verify(
                    self._start,
                    self._python,
                    self._place.scratch,
                    devices=frozenset(map(str, given.seen)),
                    groups=frozenset(given.groups),
                )
                self._promises = Promises(
                    contained=True,
                    no_network=True,
                    separate_users=os.geteuid() == 0,
                    ends_whole_tree=True,
                    enforced_cpus=True,
                    kernel_limits=True,
                    notes=_NOTES,
                )
            return self._promises

    def start(self, command: Command) -> SupervisedProcess:
        """Returns once it runs. Raises: SandboxUnavailable; DiskFull; SandboxError."""
        self.promises()
        return self._start(command)

    def reap(self) -> list[str]:
        """Remove what agents that have died left behind. Raises: SandboxUnavailable, SandboxError."""
        ended = records.reap(self._place.records)
        engine, _, _ = self._base()
        for found, labels in engine.labelled():
            if not owner_lives(labels):
                engine.remove(found)
                ended.append(f"container {found[:12]} of an agent that was killed")
        return ended

    def _base(self) -> tuple[Engine, str, tuple[Path, ...]]:
        """The engine, the image, and what is shown of this machine."""
        if self._settled is None:
            engine = Engine()
            if self._image is None:
                shown = view.of_machine(self._python)
                self._settled = (engine, engine.make_empty_image(), (*shown, *self._mounts))
            else:
                image = image_check.usable(engine, self._image)
                self._inside = image_check.interpreter(engine, self._image, self._python)
                self._settled = (engine, image, self._mounts)
        return self._settled

    def _as_inside(self, command: Command) -> Command:
        """The same with the interpreter's path: what PATH a command is given is none of the image's."""
        program, *rest = command.argv
        return replace(command, argv=(self._inside, *rest)) if program == self._python else command

    def _start(self, command: Command) -> SupervisedProcess:
        engine, image, shown = self._base()
        command, given = self._as_inside(command), self._access()
        uid = next(self._user_ids) if os.geteuid() == 0 else None
        with starting(command, self._place, uid) as prepared:
            outside = Outside(
                uid=os.geteuid() if uid is None else uid,
                gid=os.getegid() if uid is None else uid,
                channel=prepared.channel,
                init=(self._inside, "-I", "-S", str(self._init())),
                view=shown,
                gpu=given,
                counters=counters.grant_needed(command.counters),
            )
            made = _create(engine, prepared.name, image, replace(command, env=given.merged(command.env)), outside)
            prepared.undo.callback(engine.remove, made)
            attached = engine.attach(made)
            try:
                pid = engine.start(made)
                identity = _identity(engine, pid, made)
                order = watcher.Order(
                    host_pid=os.getpid(),
                    argv=list(command.argv),
                    engine=engine.socket,
                    container=made,
                    pid=pid,
                    attached=attached,
                    bounds=prepared.bounds(cgroup.memory_events_of(pid)),
                    litter=prepared.record.litter,
                )
                supervisor = spawner.start(order, prepared.record.log, script=_WATCHER, descriptors=[attached])
            finally:
                os.close(attached)
            groups = ControlGroups(SignalFreezer(), _CpuSet(engine, made))
            tree = Tree(identity, with_root=True)
            return prepared.running(supervisor, tree, groups, partial(_completed, engine, made))

    def _access(self) -> Access:
        engine, _, _ = self._base()
        if self._image is None:
            return access.by_nodes(self._gpu)  # the driver's libraries are among what is seen of this machine
        return access.by_engine(self._gpu, engine.info)

    def _init(self) -> Path:
        copy = self._place.scratch / "init.py"
        if not copy.exists():
            copy.write_bytes(resources.files("sandbox.guest").joinpath("init.py").read_bytes())
            copy.chmod(0o444)
        return copy


def _create(engine: Engine, name: str, image: str, command: Command, outside: Outside) -> str:
    try:
        return engine.create(
            name,
            image,
            container.argv(command, outside),
            container.host_options(command, outside),
            command.role,
            **container.other_options(command, outside),
        )
    except SandboxError as error:
        if outside.counters and "capability" in error.message:  # engines before 23 know none of that name
            raise counters.cannot_grant(f"docker {engine.version} cannot grant {counters.CAPABILITY}") from error
        raise


def _completed(engine: Engine, made: str, ended: Ended) -> Ended:
    """The same with what the engine tells of a container's end; it is removed. Raises: SandboxError."""
    told: dict[str, Any] = {}
    if ended.reason == "exited":
        code = engine.wait(made)
        if code is None:  # it was removed meanwhile
            told = {"reason": "signal"}
        elif code <= 128:
            told = {"status": code, "signal": None}
        else:  # the init tells of a signal so
            killed = code == 128 + signal.SIGKILL and engine.inspect(made)["State"].get("OOMKilled")
            told = {"signal": code - 128, "reason": "memory limit" if killed else "signal"}
    engine.remove(made)
    return replace(ended, **told)


class _CpuSet:
    """The container's CPU set, which the engine changes."""

    def __init__(self, engine: Engine, made: str) -> None:
        self._engine, self._made = engine, made
        self._now: tuple[int, ...] | None = None

    def allow(self, cpus: tuple[int, ...]) -> None:
        if cpus != self._now:
            self._engine.allow_cpus(self._made, ",".join(map(str, cpus)))
            self._now = cpus


def _identity(engine: Engine, pid: int, made: str) -> Identity:
    """Process 1 of a container, as seen from here; an identity that never lives when it has ended already.

    Raises: SandboxUnavailable when the engine's process ids mean other processes here, which must not be signalled, or
    none: then nothing would be frozen or held to its limits.
    """
    found = Identity.of(pid) if pid else None
    if found is not None and not found.alive:  # a dead one is in no group any more
        found = None
    groups = sysfs.text(Path(f"/proc/{pid}/cgroup")) or "" if found is not None else ""
    if made[:12] in groups:
        assert found is not None
        return found
    if groups or (pid and found is None and not any(process_tree.every_process())) or _runs_on(engine, made):
        raise SandboxUnavailable(
            "the processes of its containers are not to be seen from here",
            hint="Run the agent where the engine runs, not in a container or outside its virtual machine; or choose "
            "--sandbox bwrap.",
        )
    return Identity(pid=pid or 1, started_ticks=-1)  # it ended at once: nothing is below it


def _runs_on(engine: Engine, made: str) -> bool:
    """Whether the engine says so for longer than it takes to notice an end."""
    deadline = time.monotonic() + _NOTICED_S
    while engine.inspect(made)["State"]["Running"]:
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)
    return False
