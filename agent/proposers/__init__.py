"""The seam where candidates come from. Implementations are siblings that never import each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agent.records.ledger import LedgerRow
from agent.step_names import STEPS
from tools.candidate import Candidate, Key, Role, Site
from tools.judging.accept import SpeedupInterval
from tools.observation import Observation
from tools.registry import cut
from tools.registry.marks import marked
from tools.tuned import Tuned


@dataclass(frozen=True)
class Platform:
    """What the target runs on, as far as a proposal depends on it."""

    device: str  # "cpu" or "cuda"
    rocm: bool = False
    gfx: str = ""
    triton: bool = False  # the target's interpreter can compile and run Triton kernels on this device
    cpp_compiler: bool = True
    torch: str = ""


@dataclass(frozen=True)
class PastAttempt:
    """An attempt as far as a proposer may learn from it."""

    step: str
    title: str
    verdict: str
    reason: str
    diff_digest: str
    key: Key
    role: Role = "first"
    first_call_s: float = 0.0  # with all that was compiled for it; 0 where nothing was
    speedup: SpeedupInterval | None = None
    by_case: Sequence[float] = ()
    stacked: bool = False  # on the stack now
    unproven_below: bool = False  # judged on enablers

    @classmethod
    def of(cls, row: LedgerRow, stacked: Collection[str]) -> PastAttempt:
        """`stacked`: the attempts on the stack now."""
        compiled = (row.evidence.get("correctness") or {}).get("compiled") or {}
        timed = row.evidence.get("comparison") or {}
        return cls(
            row.step,
            row.title,
            row.verdict,
            row.reason,
            row.diff_digest,
            row.key,
            row.role,
            first_call_s=float(compiled.get("first_call_s") or 0.0),
            speedup=row.speedup,
            by_case=tuple(float(case["median"]) for case in timed.get("cases") or []),
            stacked=row.attempt_id in stacked,
            unproven_below=bool(row.below),
        )

    def told(self) -> str:
        """The verdict for whoever made the candidate, with its figures. The reason is marked as data: it may hold what
        the target raised, what its tests are called, or what a reviewer says.
        """
        cases = f", by case {', '.join(f'{each:.3f}x' for each in self.by_case)}" if len(self.by_case) > 1 else ""
        figures = f" Measured: {self.speedup}{cases}." if self.speedup is not None else ""
        return f"The verdict on your candidate: {self.verdict}.{figures}\n{marked('data', cut(self.reason))}"


@dataclass(frozen=True)
class ProposalRequest:
    """The state of the run, for one step."""

    step: str
    base: Path  # the tree that a diff is against: the stack, or what waits on it; to read, never to write
    tree: Path  # the same with copies of library modules where something was found, see `tools/rewrite/overlay.py`
    entry: str  # relative to the tree
    entry_is_protected: bool
    observation: Observation
    platform: Platform
    attempts: Sequence[PastAttempt] = field(default=())
    cases: Sequence[dict[str, Any]] = field(default=())
    steps: Sequence[str] = STEPS  # of this run
    judged_here: Set[str] = frozenset()  # digests of what was judged on this very top: nothing of it is judged again
    tune: Callable[[], Tuned] | None = None  # asks a tuner on the device; raises CannotRewrite where that fails
    tuning_pays: bool = False  # plain torch.compile was fastest with max-autotune, on a GPU by more than noise
    recording_pays: bool = False  # plain torch.compile was faster where it records calls as graphs
    compile_endless: bool = False  # plain torch.compile came to no end, or began again for each input
    compile_breaks: int | None = None  # places where plain torch.compile went on in Python; None: not known
    floor: float = 0.0  # noise of the session's A/A, as a gain; 0 where it is not known
    looking: bool = False  # dry run: proposers that cost time or money are not called


class Proposer(Protocol):
    """Answers: which candidates next? An empty answer with a reason ends the step."""

    name: str

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        """Candidates against `request.tree`, best first, and one line that says why there are none, if so."""

    def expects(self, request: ProposalRequest) -> float:
        """The speedup that what the step tries next promises, as far as can be told at next to no cost: 1 where it
        promises none, 0 where there is nothing to try.
        """

    def sites(self, request: ProposalRequest) -> list[Site]:
        """The places worth changing, as far as this proposer can see."""
        return []

    def advice(self, request: ProposalRequest) -> list[str]:
        """What only the user can do, since it would have to be said in the entry."""
        return []


class InTurn(Proposer):
    """Several proposers, each asked when those before it have nothing left; none once `over` says why."""

    def __init__(self, proposers: Sequence[Proposer], over: Callable[[], str] = lambda: "") -> None:
        self.proposers, self._over = proposers, over
        self.name = " and ".join(each.name for each in proposers)

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        if why := self._over():
            return [], why
        reasons = []
        for each in self.proposers:
            found, reason = each.propose(request)
            if found:
                return found, ""
            reasons.append(reason)
        return [], "; ".join(dict.fromkeys(filter(None, reasons)))

    def expects(self, request: ProposalRequest) -> float:
        gains = [] if self._over() else [each.expects(request) for each in self.proposers]
        return next(filter(None, gains), 0.0)

    def sites(self, request: ProposalRequest) -> list[Site]:
        return [site for each in self.proposers for site in each.sites(request)]

    def advice(self, request: ProposalRequest) -> list[str]:
        return list(dict.fromkeys(line for each in self.proposers for line in each.advice(request)))
