"""What a candidate returned while it was timed: is it what it committed to, and right?

A fresh reference worker computes the same calls. Refuses to let a large output fill the disk or the time: in float64
those of a language model are gigabytes, so that they are made, compared and removed one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from tools.errors import workload_error
from tools.judging import correctness, disk
from tools.judging.clock import TimedOutput
from tools.judging.correctness import Compared, Finding
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Workload

COMPARED_BYTES = 1 << 30
LEAST = 6  # of each case: who answers wrongly in half of the timed calls gets through once in 64 times


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
            answered = _answered(reference, workload, rng.sample(outputs, len(outputs)))
            found = correctness.judge_calls(_compared(reference, workload, answered), workload.rules, reference)
        except WorkerFault as fault:
            raise workload_error(fault.kind, fault.message, fault.where, setting.entry, fault.ended) from fault
    found.evidence["kept"] = len(outputs)
    return found


def _answered(reference: Worker, workload: Workload, outputs: Sequence[TimedOutput]) -> dict[Path, TimedOutput]:
    """Those that are looked at, by the file with the original's answer: as many as there is room for, and some of each
    case in any case.

    They are chosen after the last of them was committed to, and by the size of the original's answer: no worker has a
    say in it.
    """
    room, found = COMPARED_BYTES, dict[Path, TimedOutput]()
    sizes, count = dict[int, int](), defaultdict[int, int](int)
    _load(reference, workload)
    for index, timed in enumerate(outputs):
        if sizes.get(timed.case, 0) > room and count[timed.case] >= LEAST:
            continue
        path = _answer(reference, workload, timed, f"baseline-{index}")
        with disk.in_the_hands_of_a_worker():
            sizes[timed.case] = path.stat().st_size
        room, found[path] = room - sizes.get(timed.case, 0), timed
        count[timed.case] += 1
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
    source = reference.reveal(timed.input)
    reference.ask("stage", path=source, constants=list(workload.constants), phase=phase)
    reference.ask("call", key=1)
    into = reference.saved(name)
    reference.ask("save", path=str(into))
    return into
