"""Clocks that write to a file and answer from one, so that a run can be audited or repeated with another's timings."""

from __future__ import annotations

import contextlib
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tools.errors import ClockNotRecorded
from tools.judging.measure import Clock, Comparison, Measured, Request


@dataclass
class RecordingClock:
    """Passes on to another clock and writes every comparison to a file, one JSON object a line."""

    inner: Clock
    file: Path

    def compare(self, request: Request) -> Measured:
        found = self.inner.compare(request)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.writelines(comparison.model_dump_json() + "\n" for comparison in found.comparisons.values())
            stream.flush()
            os.fsync(stream.fileno())
        return found

    def series(self) -> AbstractContextManager[None]:
        return self.inner.series()

    def close(self) -> None:
        self.inner.close()


@dataclass
class RecordedClock:
    """Answers from a recording, by purpose and the keys of both builds. Times nothing."""

    file: Path

    def __post_init__(self) -> None:
        rows = [Comparison.model_validate(json.loads(line)) for line in self.file.read_text().splitlines() if line]
        self._rows = {(row.purpose, row.incumbent, row.candidate): row for row in rows}

    def compare(self, request: Request) -> Measured:
        """Raises: ClockNotRecorded."""
        return Measured({name: self._recorded(request.blank(name)) for name in request.candidates})

    def series(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        """Nothing was started."""

    def _recorded(self, wanted: Comparison) -> Comparison:
        name = (wanted.purpose, wanted.incumbent, wanted.candidate)
        if name not in self._rows or len(self._rows[name].case_total_log_ratios) != len(self._rows[name].log_ratios):
            raise ClockNotRecorded(
                f"the recording {self.file} has no comparison {name}",
                hint="Record it again: it was made with another version of the target or of ratchet.",
            )
        return self._rows[name]
