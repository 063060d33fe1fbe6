"""The bench that a sandbox is put on: folders, a guest that attacks on demand, and what was seen of it.

Nothing is left behind, and an attack that could not be made is not taken for one that failed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from sandbox.contract import Command, Ended, Limits, Process, ProcessEnded, Sandbox
from sandbox.guest import wire
from sandbox.guest.wire import BadFrame, ChannelClosed

Weakening = Literal["memory_bytes", "processes", "file_bytes", "disk_bytes", "free_disk_bytes", "output_bytes"]

_T = TypeVar("_T")

PATIENCE_S = 20.0  # for what takes milliseconds, on a machine that is busy
ENDING_S = 5.0  # for a limit to be noticed, on a machine that is busy
_PACKAGE = "_ratchet_guest"
_FILES = (*(Path(__file__).parent / "inside").glob("*.py"), Path(wire.__file__))
_START = f"import os, sys; sys.path.insert(0, os.getcwd()); from {_PACKAGE}.attack import main; main()"
_MIB = 1 << 20
# of the guest that looks around; small, so that one that breaks out of a check does no harm
_OWN_LIMITS = Limits(
    memory_bytes=256 * _MIB,
    processes=64,
    file_bytes=64 * _MIB,
    disk_bytes=128 * _MIB,
    tmp_bytes=8 * _MIB,
    shm_bytes=8 * _MIB,
)
_UNLIMITED = {"output_bytes": 1 << 40, "free_disk_bytes": 0}


class Unanswered(Exception):
    """An attack could not be made, or its guest ended over it: nothing is known of what it would have got."""


@dataclass(frozen=True)
class Guest:
    """A process inside that waits to be told what to do, and `kept`, the one folder that it may write to."""

    name: str  # its role
    process: Process
    kept: Path
    ending_s: float = ENDING_S

    @property
    def mark(self) -> str:
        """One of its variables, with its value: only the guest and its children have it."""
        return f"RATCHET_CHECK={self.name}"

    def ask(self, attack: str, **arguments: Any) -> Any:
        """What it tells of an attack. Raises: Unanswered."""
        self.tell(attack, **arguments)
        return self.hear()

    def tell(self, attack: str, **arguments: Any) -> None:
        """Without waiting for an answer. Raises: Unanswered."""
        with self._answering():
            self.process.channel.send({"attack": attack, "arguments": arguments})

    def hear(self) -> Any:
        """The answer to what it was told. Raises: Unanswered."""
        with self._answering():
            told = self.process.channel.receive(PATIENCE_S)
        if "failed" in told:
            raise Unanswered(f"the attack broke off: {told['failed']}")
        return told["told"]

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (ProcessEnded, ChannelClosed, BadFrame, TimeoutError) as error:
            ended = self.ended()
            last_words = f", {ended.reason}: {ended.output_tail[-300:]}" if ended else ""
            raise Unanswered(f"its guest did not answer ({type(error).__name__}{last_words})") from error

    def end(self) -> Ended | str:
        """How it was ended over what it was told; where it was not, in words what it could do."""
        try:
            said = f"it could, and went on (it tells {self.hear()!r})"
        except Unanswered as unanswered:
            said = str(unanswered)
        return self.ended() or said

    def ended(self) -> Ended | None:
        """Gives a limit the time to be noticed."""
        return eventually(self.process.poll, self.ending_s)

    def variables(self) -> dict[str, str]:
        """Its environment, as the kernel has it. Raises: Unanswered."""
        lines = self.ask("read", paths=["/proc/self/environ"])["/proc/self/environ"].split("\0")
        return {name: value for name, _, value in (line.partition("=") for line in lines if line)}

    def processes(self) -> list[int]:
        """Of this machine, those that are the guest or its children."""
        return carrying(self.mark)


class Bench:
    """One sandbox, one interpreter, and a folder of its own in `folder`.

    Every user must be able to enter `folder`, and it must not lie in what the sandbox shows to every command.
    `given` is a folder that guests may read; `secret` is a file beside it that is open to every user of this machine
    and holds the `token`. `unlimited` are limits that guests go without, and `ending_s` is how long one is waited for.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        python: str,
        folder: Path,
        *,
        unlimited: frozenset[Weakening] = frozenset(),
        ending_s: float = ENDING_S,
    ) -> None:
        self.sandbox, self.python, self._ending_s = sandbox, python, ending_s
        self.token = secrets.token_hex(16)
        self._unlimited: dict[str, Any] = {name: _UNLIMITED.get(name) for name in unlimited}
        self._guests = list[Guest]()
        self._own: Guest | None = None
        self.folder = folder.resolve() / f"check-{self.token[:16]}"
        self.given, self.secret = self.folder / "given", self.folder / "beside" / "secret"
        for each in (self.folder, self.given, self.given / _PACKAGE, self.secret.parent):
            each.mkdir()
            each.chmod(0o755)
        for file in _FILES:
            shutil.copyfile(file, self.given / _PACKAGE / file.name)
        self.secret.write_text(self.token)
        for each in (self.secret, *(self.given / _PACKAGE).iterdir()):
            each.chmod(0o644)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for guest in self._guests:
            guest.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, limits: Limits = _OWN_LIMITS, *, nested: str | None = None) -> Guest:
        """A guest of its own; `nested` names a folder in the one that it may write to, to be read only.

        Raises: SandboxError.
        """
        name = f"{self.token}-{len(self._guests)}"
        kept = self.folder / f"kept-{len(self._guests)}"
        kept.mkdir(mode=0o755)
        inner = () if nested is None else (kept / nested,)
        for each in inner:
            each.mkdir()
        command = Command(
            argv=(self.python, "-I", "-S", "-c", _START),
            cwd=self.given,
            role=name,
            env={"RATCHET_CHECK": name},
            readable=(self.given, *inner),
            writable=(kept,),
            limits=replace(limits, **self._unlimited),
        )
        guest = Guest(name, self.sandbox.start(command), kept, self._ending_s)
        self._guests.append(guest)
        return guest

    @property
    def guest(self) -> Guest:
        """The bench's own; there is one as soon as it is needed. Raises: SandboxError."""
        if self._own is None or self._own.process.poll() is not None:
            self._own = self.start()
        return self._own

    def ask(self, attack: str, **arguments: Any) -> Any:
        """What the bench's own guest tells of an attack. Raises: Unanswered, SandboxError."""
        return self.guest.ask(attack, **arguments)


@dataclass(frozen=True)
class Check:
    """One claim about a sandbox. `run` returns what was seen against it: nothing, or anything false, when it holds."""

    name: str
    promise: str  # what it holds a provider to: `suite.HELD_TO` says which provider promises it, and when
    run: Callable[[Bench], object]


def claim(name: str, promise: str) -> Callable[[Callable[[Bench], object]], Check]:
    """Makes a check of a function."""
    return lambda run: Check(name, promise, run)


def checks_in(names: Mapping[str, object]) -> tuple[Check, ...]:
    return tuple(each for each in names.values() if isinstance(each, Check))


def eventually(look: Callable[[], _T], within_s: float) -> _T:
    """The first true thing that is seen, or what was seen last."""
    deadline = time.monotonic() + within_s
    while not (seen := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return seen


def carrying(mark: str) -> list[int]:
    """The processes of this machine that were started with this among their variables."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:  # closed to us: no guest's
            if mark.encode() in file.read().split(b"\0"):
                found.append(int(name))
    return found
