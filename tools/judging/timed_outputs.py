"""Compare kept outputs of timed calls with their commitments and with the original's answers.

In float64 the outputs of a language model are gigabytes: they are made, compared and removed one after the other. The
answers in the target's own precision have to be made before the model is converted, a part at a time. Of a large tensor
secretly chosen rows are compared: where rows are wrong was looked for when it was checked, and here is looked for what
does less while it is timed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.judging import correctness, disk
from tools.judging.clock import TimedOutput
from tools.judging.correctness import Compared, Finding
from tools.judging.described import SavedRows
from tools.judging.tensors import Rows
from tools.judging.worker import Worker, WorkerFault
from tools.judging.workload import Workload

PART_BYTES = 2 << 30  # of the original's answers
COMPARED_BYTES = 16 << 20  # of one tensor


@dataclass(frozen=True)
class _Answered:
    timed: TimedOutput
    rows: Rows


def check(reference: Worker, workload: Workload, outputs: Sequence[TimedOutput]) -> Finding:
    """`reference` has read the entry. Raises: WorkerFault, SandboxError."""
    found = _check(reference, workload, outputs)
    with contextlib.suppress(WorkerFault):  # not all runs with operands rounded
        for how in workload.other_roundings(reference) if found.of_numbers else ():
            found = _check(reference, workload, outputs, how)
            if not found.of_numbers:
                break
    return found


def _check(
    reference: Worker, workload: Workload, outputs: Sequence[TimedOutput], how: Mapping[str, Any] | None = None
) -> Finding:
    left, parts = deque(outputs), list[Finding]()
    while left and not (parts and parts[-1].verdict):
        try:
            reference.ask("build", mode=workload.mode)
            answered = _answered(reference, workload, left)
            rounded = _rounded(reference, workload, answered, how) if how else {}
            compared = _compared(reference, workload, answered, rounded)
            parts.append(correctness.judge_calls(compared, workload.rules, reference))
        finally:
            reference.forget_saved()
    return _together(parts)


def _together(parts: Sequence[Finding]) -> Finding:
    failed = next((part for part in parts if part.verdict is not None), Finding(None, ""))
    evidence = {key: value for part in parts for key, value in part.evidence.items()}
    evidence["calls"] = sum(part.evidence.get("calls", 0) for part in parts)
    errors = [part.evidence["worst_row_error"] for part in parts if "worst_row_error" in part.evidence]
    evidence |= {"worst_row_error": max(errors)} if errors else {}
    return replace(failed, evidence=evidence)


def _answered(reference: Worker, workload: Workload, left: deque[TimedOutput]) -> dict[Path, _Answered]:
    """The next of them, by the file with the original's answer: as many as are a part.

    It does not depend on the candidate's files.
    """
    found, size = dict[Path, _Answered](), 0
    _load(reference, workload)
    while left and size < PART_BYTES:
        path = reference.saved(f"baseline-{len(found)}")
        _call(reference, workload, left[0])
        most = 0 if workload.rules.needs_reference else COMPARED_BYTES
        saved = reference.ask_for(SavedRows, "save", path=str(path), most=most)
        found[path] = _Answered(left.popleft(), saved.rows)
        with disk.in_the_hands_of_a_worker():
            size += path.stat().st_size
    return found


def _rounded(
    reference: Worker, workload: Workload, answered: Mapping[Path, _Answered], how: Mapping[str, Any]
) -> dict[Path, Path]:
    """What the original might have answered, for each file with its answer."""
    reference.ask("precision", **how)
    _load(reference, workload)
    return {at: _again(reference, workload, each, f"{how['how']}-{at.name}") for at, each in answered.items()}


def _compared(
    reference: Worker, workload: Workload, answered: Mapping[Path, _Answered], rounded: Mapping[Path, Path]
) -> Iterator[Compared]:
    """Each beside what the original answers; the files of one are gone when the next is asked for."""
    if workload.precision:
        reference.ask("precision", name=workload.precision)
        _load(reference, workload)
    for baseline, each in answered.items():
        timed, other = each.timed, rounded.get(baseline)
        truth = _again(reference, workload, each, f"truth-{baseline.name}") if workload.precision else baseline
        phase = workload.cases[timed.case].phase
        files = timed.output, baseline, truth
        yield Compared("timed call", f"case {timed.case}", phase, *files, timed.commitment, other, each.rows)
        with disk.in_the_hands_of_a_worker():
            for path in {baseline, truth, *([other] if other else [])}:
                path.unlink(missing_ok=True)


def _again(reference: Worker, workload: Workload, wanted: _Answered, name: str) -> Path:
    _call(reference, workload, wanted.timed)
    into = reference.saved(name)
    reference.ask("save", path=str(into), rows=wanted.rows)
    return into


def _load(reference: Worker, workload: Workload) -> None:
    if workload.states:
        reference.ask("load_state", path=reference.reveal(workload.states["b"]))


def _call(reference: Worker, workload: Workload, timed: TimedOutput) -> None:
    """Have the original answer to the same input."""
    phase = workload.cases[timed.case].phase
    source, constants = reference.reveal(timed.input.path), list(workload.constants)
    reference.ask("stage", path=source, key=timed.input.key, constants=constants, phase=phase)
    reference.hide()
    reference.ask("call", key=1)
