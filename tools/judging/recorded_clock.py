"""Clocks that record comparisons to a file and replay them, so that a run can be audited or repeated."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from tools.errors import ClockNotRecorded
from tools.judging.comparison import Comparison
from tools.judging.measure import Clock, ComparisonRequest, Fill, Measured
from tools.judging.worker import Build, WorkerFault


class Unfilled(BaseModel):
    """A build that could not be got ready to be timed."""

    unfilled: str  # key of the build
    kind: str
    message: str


@dataclass
class RecordingClock:
    """Passes on to another clock and writes every comparison to a file, one JSON object a line."""

    inner: Clock
    file: Path

    def compare(self, request: ComparisonRequest) -> Measured:
        found = self.inner.compare(request)
        self._write(found.comparisons.values())
        return found

    def know(self, found: Comparison) -> None:
        self.inner.know(found)

    def filled(self, build: Build, fill: Fill) -> Build:
        try:
            return self.inner.filled(build, fill)
        except WorkerFault as fault:
            self._write([Unfilled(unfilled=build.key, kind=fault.kind, message=fault.message)])
            raise

    def close(self) -> None:
        self.inner.close()

    def _write(self, rows: Iterable[BaseModel]) -> None:
        with self.file.open("a", encoding="utf-8") as stream:
            stream.writelines(row.model_dump_json() + "\n" for row in rows)
            stream.flush()
            os.fsync(stream.fileno())


@dataclass
class RecordedClock:
    """Answers from a recording, by purpose and the keys of both builds, or by purpose alone where the recording leaves
    the keys empty. Times nothing.
    """

    file: Path

    def __post_init__(self) -> None:
        lines = [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines() if line]
        compared = [Comparison.model_validate(line) for line in lines if "unfilled" not in line]
        self._rows = {(row.purpose, row.incumbent, row.candidate): row for row in compared}
        unfilled = [Unfilled.model_validate(line) for line in lines if "unfilled" in line]
        self._unfilled = {row.unfilled: row for row in unfilled}

    def compare(self, request: ComparisonRequest) -> Measured:
        """Raises: ClockNotRecorded."""
        return Measured({name: self._recorded(request.blank(name)) for name in request.candidates})

    def know(self, found: Comparison) -> None:
        """It is in the recording."""

    def filled(self, build: Build, fill: Fill) -> Build:
        """As it is: it is not timed."""
        if failed := self._unfilled.get(build.key):
            raise WorkerFault(failed.kind, failed.message)
        return build

    def close(self) -> None:
        """Nothing was started."""

    def _recorded(self, wanted: Comparison) -> Comparison:
        name = (wanted.purpose, wanted.incumbent, wanted.candidate)
        found = self._rows.get(name) or self._rows.get((wanted.purpose, "", ""))
        if found is None or len(found.case_total_log_ratios) != len(found.log_ratios):
            raise ClockNotRecorded(
                f"the recording {self.file} has no comparison {name}",
                hint="Record it again: it was made with another version of the target or of ratchet.",
            )
        return found
