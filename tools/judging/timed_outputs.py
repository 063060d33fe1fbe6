"""Compare kept outputs of timed calls with their commitments and with the answers of fresh reference workers.

In float64 the outputs of a language model are gigabytes: they are made, compared and removed one after the other. The
answers in the target's own precision have to be made before the model is converted: a part at a time, each by a fresh
worker, a few parts at once where there is room.
"""

from __future__ import annotations

import shutil
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.judging import correctness, disk
from tools.judging.clock import TimedOutput
from tools.judging.correctness import Compared, Finding
from tools.judging.worker import Build, Setting, Worker, blamed_on
from tools.judging.workload import Workload

PART_BYTES = 2 << 30  # of the original's answers
AT_ONCE = 3  # parts, on a machine with a GPU, which has cores and memory for as many
COPIES = 4  # of a model in 16 bits that is converted to 64


def check(setting: Setting, workload: Workload, pristine: Build, outputs: Sequence[TimedOutput]) -> Finding:
    """Raises: WorkloadError, SandboxError."""
    left, at_once = deque(outputs), _at_once(setting, workload)
    pool = ThreadPoolExecutor(at_once)
    try:
        return _together([*pool.map(lambda _: _part_by_part(setting, workload, pristine, left), range(at_once))])
    finally:
        left.clear()
        stopped = isinstance(sys.exception(), KeyboardInterrupt)
        pool.shutdown(wait=not stopped)  # on Ctrl-C the sandbox ends the workers


def _at_once(setting: Setting, workload: Workload) -> int:
    if workload.device == "cpu":
        return 1
    parts_of_disk = shutil.disk_usage(setting.scratch).free // (2 * COPIES * PART_BYTES)
    return next((n for n in range(min(AT_ONCE, parts_of_disk), 1, -1) if workload.fits(COPIES * n)), 1)


def _part_by_part(setting: Setting, workload: Workload, pristine: Build, left: deque[TimedOutput]) -> Finding:
    """Of what is `left`, until nothing is or something is wrong. Raises: WorkloadError, SandboxError."""
    parts = list[Finding]()
    while left:
        with (
            blamed_on(setting.entry),
            Worker(setting, pristine, "reference", timeout_s=setting.check_timeout_s) as reference,
        ):
            reference.ask("describe", **workload.describe_arguments)
            reference.ask("build", mode=workload.mode)
            compared = _compared(reference, workload, _answered(reference, workload, left))
            parts.append(correctness.judge_calls(compared, workload.rules, reference))
        if parts[-1].verdict is not None:
            left.clear()
    return _together(parts)


def _together(parts: Sequence[Finding]) -> Finding:
    failed = next((part for part in parts if part.verdict is not None), Finding(None, ""))
    evidence = {key: value for part in parts for key, value in part.evidence.items()}
    evidence["calls"] = sum(part.evidence.get("calls", 0) for part in parts)
    errors = [part.evidence["worst_row_error"] for part in parts if "worst_row_error" in part.evidence]
    return Finding(failed.verdict, failed.reason, {**evidence, **({"worst_row_error": max(errors)} if errors else {})})


def _answered(reference: Worker, workload: Workload, left: deque[TimedOutput]) -> dict[Path, TimedOutput]:
    """The next of them, by the file with the original's answer: as many as are a part; none where none is left.

    It does not depend on the candidate's files.
    """
    found, size = dict[Path, TimedOutput](), 0
    _load(reference, workload)
    while size < PART_BYTES:
        try:
            timed = left.popleft()
        except IndexError:  # by now others have it
            break
        path = _answer(reference, workload, timed, f"baseline-{len(found)}")
        found[path] = timed
        with disk.in_the_hands_of_a_worker():
            size += path.stat().st_size
    return found


def _compared(reference: Worker, workload: Workload, answered: Mapping[Path, TimedOutput]) -> Iterator[Compared]:
    """Each beside what the original answers; the files of one are gone when the next is asked for."""
    if workload.precision:
        reference.ask("precision", name=workload.precision)
        _load(reference, workload)
    for baseline, timed in answered.items():
        truth = _answer(reference, workload, timed, f"truth-{baseline.name}") if workload.precision else baseline
        phase = workload.cases[timed.case].phase
        yield Compared("timed call", f"case {timed.case}", phase, timed.output, baseline, truth, timed.commitment)
        with disk.in_the_hands_of_a_worker():
            for path in {baseline, truth}:
                path.unlink(missing_ok=True)


def _load(reference: Worker, workload: Workload) -> None:
    if workload.states:
        reference.ask("load_state", path=reference.reveal(workload.states["b"]))


def _answer(reference: Worker, workload: Workload, timed: TimedOutput, name: str) -> Path:
    """Where the original's answer to the same input lies."""
    phase = workload.cases[timed.case].phase
    source, constants = reference.reveal(timed.input.path), list(workload.constants)
    reference.ask("stage", path=source, key=timed.input.key, constants=constants, phase=phase)
    reference.ask("call", key=1)
    into = reference.saved(name)
    reference.ask("save", path=str(into))
    return into
