"""What a candidate returned while it was timed: is it what it committed to, and right? All of it is looked at.

A fresh reference worker computes the same calls. In float64 the outputs of a language model are gigabytes: they are
made, compared and removed one after the other, and the answers in the target's own precision, which have to be made
before the model is converted, a part at a time, each by a worker of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.errors import workload_error
from tools.judging import correctness, disk
from tools.judging.clock import TimedOutput
from tools.judging.correctness import Compared, Finding
from tools.judging.worker import Build, Setting, Worker, WorkerFault
from tools.judging.workload import Workload

PART_BYTES = 2 << 30  # of the original's answers


def check(setting: Setting, workload: Workload, pristine: Build, outputs: Sequence[TimedOutput]) -> Finding:
    """Raises: WorkloadError, SandboxError."""
    whole, left = Finding(None, "", {"calls": 0}), list(outputs)
    while left and whole.verdict is None:
        with Worker(setting, pristine, "reference", timeout_s=setting.check_timeout_s) as reference:
            try:
                reference.ask("describe")
                reference.ask("build", mode=workload.mode)
                answered = _answered(reference, workload, left)
                found = correctness.judge_calls(_compared(reference, workload, answered), workload.rules, reference)
            except WorkerFault as fault:
                raise workload_error(fault.kind, fault.message, fault.where, setting.entry, fault.ended) from fault
        del left[: len(answered)]
        evidence = {**found.evidence, "calls": whole.evidence["calls"] + len(answered)}
        if "worst_row_error" in evidence:
            evidence["worst_row_error"] = max(evidence["worst_row_error"], whole.evidence.get("worst_row_error", 0.0))
        whole = Finding(found.verdict, found.reason, evidence)
    return whole


def _answered(reference: Worker, workload: Workload, outputs: Sequence[TimedOutput]) -> dict[Path, TimedOutput]:
    """The first of them, by the file with the original's answer: one at least, and as many as are a part.

    What a candidate makes of its own files has no say in that.
    """
    found, size = dict[Path, TimedOutput](), 0
    _load(reference, workload)
    for index, timed in enumerate(outputs):
        path = _answer(reference, workload, timed, f"baseline-{index}")
        found[path] = timed
        with disk.in_the_hands_of_a_worker():
            size += path.stat().st_size
        if size >= PART_BYTES:
            break
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
