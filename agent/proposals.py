"""What is proposed in a run: proposers asked about the stack as it was observed to run.

Decides nothing: which step asks, and what becomes of a candidate, is the climb's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agent.builds import Builds
from agent.proposers import PastAttempt, Platform, ProposalRequest, Proposer
from agent.records import measurements
from tools.candidate import Candidate, Site
from tools.judging.worker import WorkerFault
from tools.observe import Observer
from tools.rewrite import CannotRewrite, overlay
from tools.rewrite.overlay import View
from tools.tree_removal import remove_tree
from tools.tuned import Tuned


@dataclass
class Proposals:
    proposer: Proposer
    platform: Platform
    observer: Observer
    builds: Builds
    _observed: dict[str, View | WorkerFault] = field(default_factory=dict)
    _tuned: dict[str, Tuned] = field(default_factory=dict)

    def view(self, below: Sequence[str] = ()) -> View:
        """What was seen when the top of the stack ran, with these attempts on it, and the tree in which rewriters find
        it.

        What cannot be observed is asked once. Raises: WorkerFault.
        """
        top = self.builds.records.stack.top
        base, known = self.builds.records.base(below), self._observed.get(top)
        if base not in self._observed:
            self.builds.display.say("observing", subject="the top of the stack")
            found, before = self._seen(base), self._observed
            self._observed = {base: found} if known is None else {top: known, base: found}
            for gone in before.keys() - self._observed.keys():
                remove_tree(self.builds.scratch / "trees" / f"view-{gone[:12]}")
        found = self._observed[base]
        if isinstance(found, WorkerFault):
            raise found
        return found

    def _seen(self, commit: str) -> View | WorkerFault:
        try:
            build, entry = self.builds.to_read(commit), self.builds.config.entry
            seen = self.observer.observe(build)
            return overlay.view(build.tree, entry, seen, self.builds.fresh_tree(f"view-{commit[:12]}"))
        except WorkerFault as fault:
            return fault

    def request(self, step: str, below: Sequence[str] = ()) -> ProposalRequest:
        """The state of the run, for one step. Raises: WorkerFault."""
        records, config, noise = self.builds.records, self.builds.config, self.builds.referee.noise
        delta = 0.0 if noise is None else noise.delta
        view, base, stacked = self.view(below), records.base(below), records.ledger.stacked()
        on_gpu, compiling = self.platform.device == "cuda", dict[str, Any]()
        if (known := measurements.session_start(records.run_dir)) is not None:
            compiling = {
                "tuning_pays": known.tuning_pays(delta if on_gpu else 0.0),
                "recording_pays": on_gpu and known.recording_pays(delta),
                "compile_endless": known.compile_endless,
                "compile_breaks": known.compile_breaks,
            }
        return ProposalRequest(
            step=step,
            base=self.builds.to_read(base).tree,
            tree=view.tree,
            entry=config.entry,
            entry_is_protected=self.builds.workload.form != "kernelbench",
            observation=view.observation,
            platform=self.platform,
            attempts=[PastAttempt.of(row, stacked) for row in records.ledger.rows],
            judged_here=records.ledger.judged_on(base),
            cases=[{"phase": case.phase, "shape": dict(case.shape)} for case in self.builds.workload.cases],
            steps=config.steps,
            tune=partial(self._tune, base) if self.platform.triton else None,
            floor=delta,
            **compiling,
        )

    def propose(self, step: str, below: Sequence[str] = (), **assumed: Any) -> tuple[list[Candidate], str]:
        """Candidates of a step for the stack with these attempts on it, or the reason why there are none. What is
        `assumed` is put into the request.
        """
        try:
            return self.proposer.propose(replace(self.request(step, below), **assumed))
        except WorkerFault as fault:
            return [], f"the stack could not be observed: {fault}"

    def _tune(self, base: str) -> Tuned:
        """Asked once for each base. Raises: CannotRewrite."""
        if base not in self._tuned:
            self.builds.display.say("trying launches of our kernels", 0, 0)
            try:
                self._tuned = {base: self.observer.tune(self.builds.of(base))}
            except WorkerFault as fault:
                raise CannotRewrite(f"the tuner failed: {fault}") from fault
        return self._tuned[base]

    def expecting(self, steps: Sequence[str]) -> dict[str, float]:
        """Which of these steps have something to try, and the speedup that it promises, as far as can be told from the
        stack as it is.
        """
        try:
            gains = {name: self.proposer.expects(self.request(name)) for name in steps}
        except WorkerFault:
            return {}
        return {name: gain for name, gain in gains.items() if gain}

    def sites(self) -> list[Site]:
        """The places worth changing. Raises: WorkerFault."""
        return self.proposer.sites(self.request("locate_layers"))

    def advice(self) -> list[str]:
        """What only the user can do; nothing where the stack cannot be observed."""
        try:
            return self.proposer.advice(self.request("compile_model"))
        except WorkerFault:
            return []
