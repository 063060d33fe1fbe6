"""A build in long use: some hundred calls in a row, the memory that they leave behind, sizes nobody declared, and what
it takes to start and to hold.

What is put off from call to call comes due in here, and what is quick for one shape only is slow. All of it can speak
against a change only, never for it, so that inputs may come again, and few calls of a size are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tools.judging.described import Memory
from tools.judging.script import OTHER_SIZES, Draw

if TYPE_CHECKING:
    from tools.judging.comparison import Comparison
    from tools.judging.inputs import Input
    from tools.judging.verdict import VerdictName
    from tools.judging.worker import Worker
    from tools.judging.workload import Workload

CALLS, MOST_S, FEWEST = 300, 5.0, 30  # in a row, and in seconds for one build; where they are fewer, none are made
TURN_S, TURN_CALLS = 0.04, 5  # of them at least: then it is the other's turn, so that what loads the machine meets both
BLOCKS = 3  # of calls in a row, where the first speaks against a change
SHARE = 1 / 2  # of its gain must be left, in logarithms
SIZE_CALLS, SLOW_CALL_S = 4, 0.1  # of each other size at most; of slow ones two, where the second is no longer
TELLING, MUCH_SLOWER = 1.1, 2.0  # times what the incumbent takes for another size
GROWN_BYTES, GROWN_PER_CALL = 8 << 20, 8 << 10  # more than the incumbent's in two thirds of the calls
MUCH_MEMORY, SLACK_BYTES = 3.0, 1 << 30  # times the incumbent's, and more: compilers and recorded graphs hold some
COSTS = {"start_cpu_s": "starting", "host_bytes": "host memory", "device_bytes": "device memory"}


@dataclass
class LongUse:
    """Of one build: nanoseconds of calls in a row, bytes that two thirds of them leave behind, the shortest call for
    each other size, and by name of `COSTS` what it took: seconds, or the most bytes that it held.
    """

    call_ns: list[int] = field(default_factory=list)
    stage_ns: list[int] = field(default_factory=list)
    early_bytes: int = 0  # held after a third of them
    grown_bytes: int = 0
    sizes_ns: dict[str, int] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OtherSize:
    """An input of another shape than any that is declared."""

    name: str
    phase: str
    path: Path


def other_sizes(workload: Workload, draw: Callable[[Draw, int], Path]) -> list[OtherSize]:
    """Those which the original is known to answer."""
    cheap = workload.cases[0]
    variants = [name for each in workload.variants.get(cheap.phase, ()) for name in each.split(", ")]
    draws = [Draw(case, 0) for case in workload.unseen]
    draws += [Draw(cheap, 0, name) for name in variants if name in OTHER_SIZES]
    return [
        OtherSize(f"{each.case.name} {each.variant}".strip(), each.case.phase, draw(each, number))
        for number, each in enumerate(draws)
    ]


def turns(workload: Workload) -> list[range]:
    """The numbers of the calls in a row, for each turn of a worker; none where they would be few."""
    calls, each = _calls(workload), max(TURN_CALLS, round(TURN_S / max(workload.cases[0].call_s, 1e-6)))
    return [range(calls)[at : at + each] for at in range(0, calls, each)] if calls >= FEWEST else []


def _calls(workload: Workload) -> int:
    return min(CALLS, int(MOST_S / max(workload.cases[0].call_s, 1e-6)))


def call(
    found: LongUse, worker: Worker, workload: Workload, had: Sequence[Input], turn: range, key: Callable[[], int]
) -> None:
    """The calls of one turn of a worker that may run. `had` are inputs of the cheapest case that it had before.

    Raises: WorkerFault.
    """
    case, constants = workload.cases[0], list(workload.constants)
    for number in turn:
        if number == _calls(workload) // 3:
            found.early_bytes = _resident_bytes(worker)
        given = had[number % len(had)]
        opened: dict[str, Any] = {"path": worker.reveal(given.path)}
        loaded = 0
        if given.is_sealed:
            loaded, opened = worker.took_ns("load", **opened), {"key": given.key}
        staged = worker.took_ns("stage", **opened, constants=constants, phase=case.phase)
        found.call_ns.append(worker.took_ns("call", key=key()))
        found.stage_ns.append(loaded + staged)
        worker.hide()


def look(
    found: LongUse, worker: Worker, workload: Workload, sizes: Sequence[OtherSize], key: Callable[[], int]
) -> None:
    """At what it takes after the calls in a row, and for other sizes; it may run. Raises: WorkerFault."""
    constants, is_slow = list(workload.constants), workload.cases[0].call_s > SLOW_CALL_S
    if found.early_bytes:
        found.grown_bytes = _resident_bytes(worker) - found.early_bytes
    for size in sizes:
        took = list[int]()
        while len(took) < SIZE_CALLS and not (is_slow and _settled(took)):
            worker.ask("stage", path=worker.reveal(size.path), constants=constants, phase=size.phase)
            took.append(worker.took_ns("call", key=key(), as_written=True))  # users compile once more instead
        found.sizes_ns[size.name] = min(took[1:])
    found.costs["host_bytes"] = _resident_bytes(worker, "VmHWM")
    if workload.device != "cpu":
        found.costs["device_bytes"] = worker.ask_for(Memory, "memory").peak_bytes


def _settled(took: Sequence[int]) -> bool:
    """Whether the last of these calls made nothing for those after it, as one does that records the next."""
    return len(took) > 1 and took[-1] <= TELLING * min(took)


def _resident_bytes(worker: Worker, field: str = "VmRSS") -> int:
    """Of all its processes, now or ("VmHWM") at most; what has ended meanwhile has none."""
    return sum(_status_bytes({task.pid for task in worker.process.usage().tasks}, field))


def _status_bytes(pids: set[int], field: str) -> Iterator[int]:
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        yield from (int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def speaks_against(found: Comparison) -> tuple[VerdictName, str] | None:
    """Why what was seen in long use is no gain; None where nothing was seen, or it is."""
    if not found.long_log_ratios and not found.size_ratios:
        return None
    if found.grown_bytes and median(found.grown_bytes) > GROWN_BYTES + GROWN_PER_CALL * found.long_calls * 2 / 3:
        grown = median(found.grown_bytes) / (found.long_calls * 2 / 3) / 1024
        return "broken", f"its memory grows: by {grown:.0f} KiB a call more than without it"
    if found.long_log_ratios and median(found.long_log_ratios) < SHARE * median(found.log_ratios):
        return "neutral", f"most calls are faster, but {found.long_calls} in a row are not"
    for name in ("host_bytes", "device_bytes"):
        theirs, mine = costs(found).get(name, (0.0, 0.0))
        if mine > MUCH_MEMORY * theirs + SLACK_BYTES:
            return "broken", f"it takes {mine / 2**30:.1f} GiB of {COSTS[name]}, and {theirs / 2**30:.1f} without it"
    slow = {name: ratio for name, ratio in sizes(found).items() if ratio > MUCH_SLOWER}
    if slow:
        name = max(slow, key=lambda name: slow[name])
        return "slower", f"for another size, {name}, it takes {slow[name]:.1f} times as long"
    return None


def sizes(found: Comparison) -> dict[str, float]:
    """By size: how many times as long as the incumbent it takes."""
    names = dict.fromkeys(name for each in found.size_ratios for name in each)
    return {name: median(each[name] for each in found.size_ratios if name in each) for name in names}


def costs(found: Comparison) -> dict[str, tuple[float, float]]:
    """By name of `COSTS`: the incumbent's and the candidate's."""
    names = [name for name in COSTS if found.costs and name in found.costs[0]]
    return {
        name: (median(each[name][0] for each in found.costs), median(each[name][1] for each in found.costs))
        for name in names
    }


def is_doubtful(found: Comparison) -> bool:
    """Whether to look again, since one bad second of the machine may be all that was seen."""
    return len(found.size_ratios) < BLOCKS and speaks_against(found) is not None


def told(found: Comparison) -> dict[str, object]:
    """As evidence."""
    if not found.long_log_ratios and not found.size_ratios:
        return {}
    slower = {name: round(ratio, 2) for name, ratio in sizes(found).items() if ratio > TELLING}
    ratios = [round(each, 6) for each in found.long_log_ratios]
    return {
        "calls": found.long_calls,
        "log_ratios": ratios,
        "grown_bytes": found.grown_bytes,
        "slower_sizes": slower,
        "costs": {name: [round(each, 2) for each in pair] for name, pair in costs(found).items()},
    }
