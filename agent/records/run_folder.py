"""The folder of a run: made, found again, locked, and told apart as finished, running or interrupted.

Does not know what is in the ledger or the checkpoint; it owns `run.json` and `run.lock` only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from agent import __version__
from agent.config import READ_BACK, RunConfig
from agent.environment import Environment
from agent.errors import AgentError, RunDamaged, RunExists, RunInUse, RunNotFound, RunOutdated
from agent.records.atomic_file import write_atomically
from sandbox.errors import means_disk_full

Status = Literal["finished", "running", "interrupted", "damaged"]
_ELSEWHERE = "Name a folder of yours on a local disk with --runs-dir."
# Raised whenever nodes or state of the graph, ledger rows or attempts change: a run is only continued in its own format
FORMAT = 3
_PATIENCE_S = 0.5  # who only lists runs holds each of them for a moment
_Form = TypeVar("_Form", bound=BaseModel)


class FolderUnusable(AgentError):
    """No run can be made, held or listed in a folder, which a person named and can name another for."""


class _AnyConfig(BaseModel):
    target: Path
    entry: str


class _AnyRun(BaseModel):
    """What `run.json` says in every format."""

    format: int
    version: str
    config: _AnyConfig


class RunFile(BaseModel):
    """`run.json`: what was asked for, by which version, on what."""

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    created: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    version: str = __version__
    command: list[str]
    config: RunConfig
    environment: Environment | None = None
    spent_s: float = 0.0
    """By the commands that worked on it and ended in order, interrupted ones among them."""


@dataclass(frozen=True)
class RunFolder:
    """A run on disk."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    def read(self) -> RunFile:
        """Raises: RunDamaged when `run.json` is missing or is not ours, RunOutdated when it has another format."""
        told = self._told(_AnyRun)
        if told.format != FORMAT:
            raise RunOutdated(
                f"Run {self.run_id} was made by version {told.version} of Ratchet and needs that version; "
                f"this is {__version__}.",
                hint="Start a new run; what this one proved is in its report and, if it ended, its branch.",
            )
        return self._told(RunFile)

    def about(self) -> str:
        """Target and entry of a run of any version. Raises: RunDamaged."""
        asked = self._told(_AnyRun).config
        return f"{asked.target} {asked.entry}"

    def _told(self, form: type[_Form]) -> _Form:
        try:
            return form.model_validate_json((self.path / "run.json").read_bytes(), context=READ_BACK)
        except (OSError, ValidationError) as error:
            why = str(error)
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                why = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
            hint = "Start a new run; what this one proved is in ledger.jsonl, and in the target's branch if it ended."
            raise RunDamaged(f"{self.path / 'run.json'} cannot be read: {why}", hint=hint) from error

    def write(self, run: RunFile) -> None:
        write_atomically(self.path / "run.json", run.model_dump_json(indent=2) + "\n")

    def spend(self, seconds: float) -> None:
        run = self.read()
        self.write(run.model_copy(update={"spent_s": run.spent_s + seconds}))

    @contextlib.contextmanager
    def locked(self, patience_s: float = _PATIENCE_S) -> Iterator[None]:
        """Hold the run; the kernel lets go when this process ends, in any way. Raises: RunInUse, FolderUnusable."""
        with _of_the_folder(self.path, "be locked"):
            descriptor = os.open(self.path / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            with _of_the_folder(self.path, "be locked"):
                _lock(descriptor, self.run_id, patience_s)
            yield
        finally:
            os.close(descriptor)

    def status(self) -> Status:
        try:
            with contextlib.suppress(RunOutdated):
                self.read()  # first: a folder that is none of a run gets no lock
            with self.locked(patience_s=0.0):
                pass
        except RunInUse:
            return "running"
        except (RunDamaged, FolderUnusable):
            return "damaged"
        return "finished" if (self.path / "report.json").exists() else "interrupted"


@contextlib.contextmanager
def _of_the_folder(folder: Path, what: str) -> Iterator[None]:
    """Raises: FolderUnusable for OSError, but for a full disk, which is told as such elsewhere."""
    try:
        yield
    except OSError as error:
        if means_disk_full(error.errno):
            raise
        raise FolderUnusable(f"{folder} cannot {what}: {error.strerror}", hint=_ELSEWHERE) from error


def _lock(descriptor: int, run_id: str, patience_s: float) -> None:
    """Raises: RunInUse, OSError."""
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= until:
                hint = "Wait for it, or end it first."
                raise RunInUse(f"Run {run_id} is being worked on by another process.", hint=hint) from error
        time.sleep(0.05)


def create(config: RunConfig, command: Sequence[str] | None = None) -> RunFolder:
    """Make the folder of a new run. `command` is this process's own when not given.

    Raises: RunExists, FolderUnusable; OSError when the disk is full.
    """
    new = config.runs_dir / f".{config.run_id}.{os.getpid()}"  # renamed when it is whole: no kill leaves half a run
    with _of_the_folder(config.runs_dir, "hold runs"):
        new.mkdir(parents=True, exist_ok=True)
    try:
        with _of_the_folder(config.run_dir, "be written"):
            RunFolder(new).write(RunFile(command=list(command or this_command()), config=config))
            new.rename(config.run_dir)
    except FolderUnusable as error:
        if not config.run_dir.exists():
            raise
        hint = f"`agent resume {config.run_id}` continues it; another --run-id starts a new one."
        raise RunExists(f"There is already a run {config.run_id} in {config.runs_dir}.", hint=hint) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return RunFolder(config.run_dir)


def this_command() -> list[str]:
    """The command line of this process, as a person would type it."""
    started = Path(sys.argv[0])
    return [started.parent.name if started.name == "__main__.py" else started.name, *sys.argv[1:]]


def default_runs_dirs(cwd: Path, environment: Mapping[str, str] = os.environ) -> tuple[Path, Path]:
    """Where runs go: the current folder, and the state folder of the person for runs started inside a target."""
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local/state")
    return cwd / ".ratchet" / "runs", Path(state) / "ratchet" / "runs"


def runs_dir_for(target: Path, cwd: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The current folder's, unless that lies in the target, which is never written to."""
    here, state = default_runs_dirs(cwd, environment)
    return state if cwd.resolve().is_relative_to(target.expanduser().resolve()) else here


def find(reference: str, runs_dirs: Sequence[Path]) -> RunFolder:
    """The run named `reference`: an id, or the path of its folder. Raises: RunNotFound."""
    for path in (*(folder / reference for folder in runs_dirs), Path(reference)):
        if os.path.exists(path / "run.json"):  # noqa: PTH110 - False where `exists` raises
            return RunFolder(path.absolute())
    looked = ", ".join(str(folder) for folder in runs_dirs)
    raise RunNotFound(f"There is no run {reference} (looked in {looked}).", hint="`agent runs` lists them.")


def every(runs_dirs: Sequence[Path]) -> list[RunFolder]:
    """All runs of these folders, oldest first. Raises: FolderUnusable."""
    paths = list[Path]()
    for folder in runs_dirs:
        with _of_the_folder(folder, "be listed"):
            found = folder.iterdir() if folder.is_dir() else ()
            paths += [path for path in found if path.is_dir() and not path.name.startswith(".")]
    return [RunFolder(path) for path in sorted(paths, key=lambda path: path.name)]
