"""What a candidate returned while it was timed: is it what it committed to, and right?

A fresh reference worker computes the same calls. Refuses to let a large output fill the disk or the time: in float64
those of a language model are gigabytes, so that they are made, compared and removed one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

from tools.errors import workload_error
from tools.judging import correctness, disk
from tools.judging.clock import SAMPLES, TimedOutput
from tools.judging.correctness import Compared, Finding
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Workload

COMPARED_BYTES = 1 << 30


def check(
    setting: Setting, workload: Workload, pristine: Build, outputs: Sequence[TimedOutput], rng: Random
) -> Finding:
    """Raises: WorkloadError, SandboxError."""
    if not outputs:
        return Finding(None, "", {"calls": 0})
    with Worker(setting, pristine, "reference", timeout_s=setting.check_timeout_s) as reference:
        try:
            reference.ask("describe")
            reference.ask("build", mode=workload.mode)
            compared = _compared(reference, workload, _looked_at(outputs, rng))
            found = correctness.judge_calls(compared, workload.rules, reference)
        except WorkerFault as fault:
            raise workload_error(fault.kind, fault.message, fault.where, setting.entry, fault.ended) from fault
    found.evidence["kept"] = len(outputs)
    return found


def _looked_at(outputs: Sequence[TimedOutput], rng: Random) -> list[TimedOutput]:
    """As many as there is room for, and of each case two at least.

    Chosen after the last of them was committed to, so that no worker gains by what is left out.
    """
    room, chosen, count = COMPARED_BYTES, list[TimedOutput](), defaultdict[int, int](int)
    for timed in rng.sample(outputs, len(outputs)):
        room -= timed.output.stat().st_size
        if room >= 0 or count[timed.case] < SAMPLES:
            chosen.append(timed)
            count[timed.case] += 1
    return chosen


def _compared(reference: Worker, workload: Workload, outputs: Sequence[TimedOutput]) -> Iterator[Compared]:
    """Each beside what the original answers; the files of one are gone when the next is asked for."""
    baseline = [*_answers(reference, workload, outputs, "baseline")]
    truths: Iterable[Path] = baseline
    if workload.precision:
        reference.ask("precision", name=workload.precision)
        truths = _answers(reference, workload, outputs, "truth")
    for timed, theirs, truth in zip(outputs, baseline, truths, strict=True):
        phase = workload.cases[timed.case].phase
        yield Compared("timed call", f"case {timed.case}", phase, timed.output, theirs, truth, timed.commitment)
        with disk.in_the_hands_of_a_worker():
            for path in {theirs, truth}:
                path.unlink(missing_ok=True)


def _answers(reference: Worker, workload: Workload, outputs: Sequence[TimedOutput], prefix: str) -> Iterator[Path]:
    if workload.states:
        reference.ask("load_state", path=reference.reveal(workload.states["b"]))
    for index, timed in enumerate(outputs):
        phase = workload.cases[timed.case].phase
        source = reference.reveal(timed.input)
        reference.ask("stage", path=source, constants=list(workload.constants), phase=phase)
        reference.ask("call", key=1)
        into = reference.saved(f"{prefix}-{index}")
        reference.ask("save", path=str(into))
        yield into
