"""The ledger: every attempt ever made, one line of JSON each, append-only and chained by hashes.

Never changes or removes a row. What a kill left of an unfinished last line is set aside; a row that was on the disk
and no longer fits the chain is an error. The chain does not show that whole rows are missing at the end: the stack
does, whose commits name their attempts (`run_records.py`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.errors import RunDamaged
from agent.records.atomic_file import sync_folder
from sandbox.errors import DiskFull, means_disk_full
from tools.candidate import Key, Role
from tools.judging.accept import SpeedupInterval
from tools.judging.verdict import VerdictName

FIRST = "0" * 64


class LedgerCorrupt(RunDamaged):
    """A row of the ledger is not what was written."""

    exit_status = 27


def _plain(value: Any) -> Any:
    """JSON values only. A number that JSON has no sign for, such as the error of an output full of NaN, is a word."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
    if value is None or isinstance(value, int | float):
        return value
    raise ValueError(f"{type(value).__name__} is no JSON value")


Facts = Annotated[dict[str, Any], BeforeValidator(_plain)]
Text = Annotated[str, BeforeValidator(_plain)]


class NewRow(BaseModel):
    """What an attempt leaves in the ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    attempt_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    time: AwareDatetime
    step: str
    key: Annotated[Key, BeforeValidator(_plain)]
    role: Role = "first"
    title: Text
    """For people, its role included."""
    rationale: Text = ""
    predicted_gain: float | None = Field(default=None, allow_inf_nan=False)
    diff_digest: str = ""
    base: str = ""
    """Commit that the diff was made on."""
    below: tuple[str, ...] = ()
    """The attempts between the stack and it, which are kept and timed together with it."""
    verdict: VerdictName
    reason: Text = ""
    """The verdict in one line for a person."""
    speedup: SpeedupInterval | None = None
    """Over the stack, which it was timed against: of all that lies in `below` as well."""
    evidence: Facts = Field(default_factory=dict)
    cost: Facts = Field(default_factory=dict)
    """What judging took: `wall_s`, `restarts`, and the like."""
    commit: str | None = None
    stack: tuple[str, ...] | None = None
    """The attempts that are on the stack from this row on, in order. None: this row leaves the stack as it is."""

    @property
    def is_of_its_step(self) -> bool:
        """Whether the step made it in its turn."""
        return self.role not in ("beside", "leave_one_out")

    def same_as(self, other: NewRow) -> bool:
        """Whether both say the same, the time and the cost of saying it apart."""
        said = set(NewRow.model_fields) - {"time", "cost"}
        return self.model_dump(include=said) == other.model_dump(include=said)


class LedgerRow(NewRow):
    """A row as it stands in the file."""

    seq: int = Field(ge=0)
    prev: str
    """Hash of the row before."""
    hash: str

    @classmethod
    def following(cls, row: NewRow, seq: int, prev: str) -> Self:
        unsigned = cls(**row.model_dump(), seq=seq, prev=prev, hash="")
        return unsigned.model_copy(update={"hash": unsigned.computed_hash()})

    def computed_hash(self) -> str:
        return hashlib.sha256(_canonical(self.model_dump(mode="json", exclude={"hash"}))).hexdigest()

    def line(self) -> bytes:
        return _canonical(self.model_dump(mode="json")) + b"\n"


class Ledger:
    """`ledger.jsonl` of one run. Only one process writes it: the one that holds the run's lock."""

    def __init__(self, path: Path, rows: list[LedgerRow]) -> None:
        self.path = path
        self._rows = rows

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """The ledger in `path`, made if need be. An unfinished last line is moved to `ledger.jsonl.torn`.

        Raises: LedgerCorrupt, DiskFull, OSError.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
            path.touch()
            sync_folder(path.parent)
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            _append(path.with_name(path.name + ".torn"), content[len(whole) :] + b"\n")
            os.truncate(path, len(whole))
        return cls(path, _read_rows(path, whole))

    @classmethod
    def read(cls, path: Path) -> tuple[LedgerRow, ...]:
        """The rows, read only, perhaps while a run goes on. Raises: LedgerCorrupt, OSError."""
        content = path.read_bytes()
        return tuple(_read_rows(path, content[: content.rfind(b"\n") + 1]))

    @property
    def rows(self) -> tuple[LedgerRow, ...]:
        return tuple(self._rows)

    def find(self, attempt_id: str) -> LedgerRow | None:
        return next((row for row in self._rows if row.attempt_id == attempt_id), None)

    def stacked(self) -> list[str]:
        """The attempts that are on the stack, in order."""
        return next((list(row.stack) for row in reversed(self._rows) if row.stack is not None), [])

    def judged_on(self, base: str) -> set[str]:
        """Digests of the diffs that were judged on this very commit, in whichever step."""
        return {row.diff_digest for row in self._rows if row.base == base}

    def append(self, row: NewRow) -> LedgerRow:
        """Write a row; it is on the disk when this returns. The same row again changes nothing.

        Raises: ValueError when the attempt has another row already, DiskFull, OSError; then the file is as it was.
        """
        known = self.find(row.attempt_id)
        if known is not None:
            if known.same_as(row):
                return known
            raise ValueError(f"the ledger already says something else of the attempt {row.attempt_id}")
        prev = self._rows[-1].hash if self._rows else FIRST
        written = LedgerRow.following(row, len(self._rows), prev)
        _append(self.path, written.line())
        self._rows.append(written)
        return written


def _read_rows(path: Path, content: bytes) -> list[LedgerRow]:
    rows: list[LedgerRow] = []
    prev = FIRST
    for number, line in enumerate(content.split(b"\n")[:-1]):
        try:
            row = LedgerRow.model_validate_json(line)
        except ValidationError as error:
            raise _corrupt(path, number, "it is no row of ours") from error
        if row.seq != number or row.prev != prev:
            raise _corrupt(path, number, "it does not follow the row before it")
        if row.hash != row.computed_hash() or row.line() != line + b"\n":
            raise _corrupt(path, number, "it was changed after it was written")
        rows.append(row)
        prev = row.hash
    return rows


def _corrupt(path: Path, number: int, why: str) -> LedgerCorrupt:
    hint = "Restore the file from a copy, or start a new run; the commits of the stack are not touched by this."
    return LedgerCorrupt(f"Row {number} (line {number + 1}) of {path} is damaged: {why}.", hint=hint)


def _canonical(values: dict[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _append(path: Path, data: bytes) -> None:
    """Add `data` at the end and see it on the disk, or leave the file as it was. Raises: DiskFull, OSError."""
    new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    size = os.fstat(descriptor).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, size)
        if means_disk_full(error.errno):
            hint = "Free some space and resume the run; every row written before is safe."
            raise DiskFull(f"The disk is full: {path} could not be continued.", hint=hint) from error
        raise
    finally:
        os.close(descriptor)
    if new:
        sync_folder(path.parent)
