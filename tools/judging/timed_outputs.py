"""Compare kept outputs of timed calls with their commitments and with the original's answers.

In float64 the outputs of a language model are gigabytes: they are made, compared and removed one after the other. The
answers in the target's own precision have to be made before the model is converted, a part at a time. Of a large tensor
secretly chosen rows are compared: where rows are wrong was looked for when it was checked, and here is looked for what
does less while it is timed.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.judging import correctness, disk, tensors
from tools.judging.clock import TimedOutput
from tools.judging.correctness import Compared, Finding
from tools.judging.tensors import BadTensorFile, Rows
from tools.judging.worker import Worker
from tools.judging.workload import Workload

PART_BYTES = 2 << 30  # of the original's answers
# of one tensor, in so many places: what is wrong in a tenth of them passes unseen in 0.1 % of the outputs
COMPARED_BYTES, PLACES = 16 << 20, 64


@dataclass(frozen=True)
class _Answered:
    timed: TimedOutput
    rows: Rows


def check(reference: Worker, workload: Workload, outputs: Sequence[TimedOutput]) -> Finding:
    """`reference` has read the entry. Raises: WorkerFault, SandboxError."""
    left, parts = deque(outputs), list[Finding]()
    while left and not (parts and parts[-1].verdict):
        reference.ask("build", mode=workload.mode)
        compared = _compared(reference, workload, _answered(reference, workload, left))
        parts.append(correctness.judge_calls(compared, workload.rules, reference))
    return _together(parts)


def _together(parts: Sequence[Finding]) -> Finding:
    failed = next((part for part in parts if part.verdict is not None), Finding(None, ""))
    evidence = {key: value for part in parts for key, value in part.evidence.items()}
    evidence["calls"] = sum(part.evidence.get("calls", 0) for part in parts)
    errors = [part.evidence["worst_row_error"] for part in parts if "worst_row_error" in part.evidence]
    return Finding(failed.verdict, failed.reason, {**evidence, **({"worst_row_error": max(errors)} if errors else {})})


def _answered(reference: Worker, workload: Workload, left: deque[TimedOutput]) -> dict[Path, _Answered]:
    """The next of them, by the file with the original's answer: as many as are a part.

    It does not depend on the candidate's files but for which rows are kept of it.
    """
    found, size = dict[Path, _Answered](), 0
    _load(reference, workload)
    while left and size < PART_BYTES:
        answered = _Answered(left[0], () if workload.rules.needs_reference else _rows(left[0].output))
        path = _answer(reference, workload, answered, f"baseline-{len(found)}")
        found[path] = answered
        left.popleft()
        with disk.in_the_hands_of_a_worker():
            size += path.stat().st_size
    return found


def _rows(output: Path) -> Rows:
    """Of each of its large tensors, by what the candidate says of their shapes."""
    try:
        leaves = tensors.read(output).leaves
    except BadTensorFile:  # which is told when it is compared
        return ()
    secret, found = random.SystemRandom(), list[tuple[int, Sequence[int], Sequence[int], int]]()
    for index, leaf in enumerate(leaves):
        apart = math.prod(leaf.shape[:-1]) // PLACES
        if leaf.nbytes > COMPARED_BYTES and apart > 1:
            together = max(1, apart * COMPARED_BYTES // leaf.nbytes)
            begins = [place * apart + secret.randrange(apart - together + 1) for place in range(PLACES)]
            found.append((index, leaf.shape, begins, together))
    return found


def _compared(reference: Worker, workload: Workload, answered: Mapping[Path, _Answered]) -> Iterator[Compared]:
    """Each beside what the original answers; the files of one are gone when the next is asked for."""
    if workload.precision:
        reference.ask("precision", name=workload.precision)
        _load(reference, workload)
    for baseline, each in answered.items():
        timed = each.timed
        truth = _answer(reference, workload, each, f"truth-{baseline.name}") if workload.precision else baseline
        phase = workload.cases[timed.case].phase
        files = timed.output, baseline, truth
        yield Compared("timed call", f"case {timed.case}", phase, *files, timed.commitment, each.rows)
        with disk.in_the_hands_of_a_worker():
            for path in {baseline, truth}:
                path.unlink(missing_ok=True)


def _load(reference: Worker, workload: Workload) -> None:
    if workload.states:
        reference.ask("load_state", path=reference.reveal(workload.states["b"]))


def _answer(reference: Worker, workload: Workload, wanted: _Answered, name: str) -> Path:
    """Where the original's answer to the same input lies."""
    timed = wanted.timed
    phase = workload.cases[timed.case].phase
    source, constants = reference.reveal(timed.input.path), list(workload.constants)
    reference.ask("stage", path=source, key=timed.input.key, constants=constants, phase=phase)
    reference.hide()
    reference.ask("call", key=1)
    into = reference.saved(name)
    reference.ask("save", path=str(into), rows=wanted.rows)
    return into
