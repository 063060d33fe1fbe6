"""How much is measured of a case in each restart: turns, calls and inputs."""

from __future__ import annotations

from dataclasses import dataclass

from tools.judging.script import Case
from tools.judging.workload import Workload


@dataclass(frozen=True)
class Turns:
    """How often it is each worker's turn in a restart, and for how long."""

    block_s: float  # what the calls of a turn take together
    calls: int  # of a turn, at most
    rounds: int  # turns of each worker, at most: so many that all its timed calls take `all_s`
    fewest: int  # and at least, but for long calls
    all_s: float


# many short turns on a CPU: what loads it comes and goes in milliseconds (with 10 turns of 70 ms the noise floor beside
# bursts was 5.3 %, with these 2.0 %: evals/results/evidence/demo/20261130-175600.md)
TURNS = {"cpu": Turns(0.0175, 5, 40, 10, 0.7), "cuda": Turns(0.03, 20, 10, 10, 0.3)}
# calls longer than this, or sequences of calls, get half of the fewest rounds, and need not settle
SLOW_CALL_S = {"cpu": 0.1, "cuda": 0.05}
MANY_CASES = 3  # from so many on each gets half the rounds: what they gain counts together
INPUT_BYTES = 1 << 30  # of a case, for one worker's timed calls: larger inputs get fewer calls, then half the rounds
WARM_UP = 3  # calls under the first state dict, then as many under the second
SETTLE = 1  # calls after a thaw that do not count: the other worker has had the caches
# timed calls per restart and case whose outputs are kept and checked; a candidate may have no more than three restarts:
# one that is wrong in half of its calls passes unseen in 0.1 % (with 2 in 4 %)
SAMPLES = 4


@dataclass(frozen=True)
class Plan:
    """How much is measured in each restart."""

    rounds: int
    calls: int  # per round and worker
    settle: int = SETTLE

    @classmethod
    def of(cls, workload: Workload, case: Case) -> Plan:
        turns, call_s = TURNS[workload.device], max(case.call_s, 1e-6)
        room = INPUT_BYTES // max(1, case.input_bytes)  # for so many inputs: each call gets its own, drawn beforehand
        calls = max(1, min(turns.calls, round(turns.block_s / call_s)))
        rounds = max(turns.fewest, min(turns.rounds, room // 2, round(turns.all_s / (calls * call_s))))
        slow = call_s >= SLOW_CALL_S[workload.device]
        if slow or room < turns.fewest:
            rounds = turns.fewest // 2
        elif len(workload.cases) >= MANY_CASES:
            rounds //= 2
        return cls(rounds, max(1, min(calls, room // rounds)), 0 if slow else SETTLE)


def inputs_needed(workload: Workload, case: Case) -> int:
    """How many inputs of a case one worker uses in one restart."""
    plan = Plan.of(workload, case)
    return WARM_UP * (2 if workload.states else 1) + plan.rounds * (plan.calls + plan.settle)
