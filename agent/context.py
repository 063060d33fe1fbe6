"""The live objects of a run, for the nodes: what cannot be in the state because it is no JSON.

Owns the builds (trees on disk, with their compile caches) of the stack and of candidates. Refuses to hold policy: which
step, which candidate and which verdict is decided elsewhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from agent.budget import Budget
from agent.config import RunConfig
from agent.proposers import Platform, ProposalRequest, Proposer
from agent.proposers.past import past_of
from agent.records import acceptance, measurements
from agent.records.attempts import Attempt, Attempts
from agent.records.kept_caches import KeptCaches, bytes_in
from agent.records.ledger import Ledger, NewRow
from agent.records.measurements import SessionStart
from agent.records.written import commit_message, cost_of
from agent.reporting.progress import Judging, Progress
from agent.repository.stack import Change, Conflict, Stack
from tools.candidate import Candidate, Site
from tools.diff.patch import PatchFinding
from tools.diff.patch_rules import PatchRules
from tools.hardware import ARCHITECTURES
from tools.integrity import hash_tree
from tools.isa.compile import Compiler
from tools.isa.gate import Gate, Looked
from tools.judging.check import Checked
from tools.judging.correctness import Finding
from tools.judging.referee import Referee
from tools.judging.verdict import Verdict
from tools.judging.worker import Build, WorkerFault
from tools.judging.workload import Workload
from tools.observe import Observer
from tools.profiler import reach
from tools.profiler.ceilings import on_faster
from tools.profiler.collect import Collector
from tools.profiler.result import Profile, StepCeiling
from tools.rewrite import CannotRewrite, overlay
from tools.rewrite.overlay import View
from tools.tree_removal import remove_tree
from tools.tuned import Tuned

AUDITED = "audited"  # the profile of what an audit left of the original
HANDED_ON_BYTES = 1 << 30  # of a compile cache
PROFILED_CALLS = 5  # of each case: profiles say where to look, and are not what is decided by


@dataclass
class RunContext:
    """Everything a node needs beside the state."""

    config: RunConfig
    run_dir: Path
    scratch: Path
    created_unix: int
    progress: Progress
    workload: Workload
    referee: Referee
    observer: Observer
    stack: Stack
    ledger: Ledger
    attempts: Attempts
    proposer: Proposer
    platform: Platform
    rules: PatchRules
    budget: Budget = field(default_factory=Budget)
    end_running: Callable[[], None] = lambda: None  # processes that others than the main thread wait for
    subject: str = ""  # what is being judged, for the display
    ended_steps: dict[str, str] = field(default_factory=dict)  # why they ended, for who proposes
    compile_baselines: dict[str, Build] = field(default_factory=dict)
    _builds: dict[str, Build] = field(default_factory=dict)
    _candidates: dict[str, Build] = field(default_factory=dict)
    _checked: dict[str, Checked] = field(default_factory=dict)
    _pristine: Checked | None = None
    _observed: dict[str, View | WorkerFault] = field(default_factory=dict)
    _tuned: dict[str, Tuned] = field(default_factory=dict)

    def say(self, phase: str, done: int = 0, of: int = 0) -> None:
        """What the referee does, for the display."""
        self.progress.emit(Judging(self.subject, phase, done, of))

    # -- builds

    def pristine_checked(self) -> Checked:
        """The pristine build judged like a candidate, once per run: it must pass its own check."""
        if self._pristine is None:
            known = self._with_kept_cache(self.referee.pristine)
            self._pristine = self.referee.check_pristine() if known is None else Checked(Finding(None, ""), known)
            self._keep_cache(self._pristine.build)
        return self._pristine

    def filled(self, build: Build) -> Build:
        """With its compile cache: the one that was kept, else filled now, or the rest of it. Raises: WorkerFault."""
        return self._with_kept_cache(build) or self.caches.fill(build, self.referee.fill)

    def _with_kept_cache(self, build: Build) -> Build | None:
        cache = self.caches.get(build.key)
        return None if cache is None else replace(build, cache=self.referee.grounds.watch(cache))

    def forget_cache(self, attempt: Attempt) -> None:
        if (build := self._candidates.get(attempt.id)) is not None:
            self.caches.drop(build.key)

    def _keep_cache(self, build: Build) -> None:
        if build.cache is not None:
            self.caches.put(build.key, build.cache)

    def build_of(self, commit: str) -> Build:
        """The tree of a commit of the stack, with its compile cache filled. Raises: WorkerFault."""
        if commit == self.stack.base:
            return self.pristine_checked().build
        if commit not in self._builds:
            tree = self.fresh_tree(f"stack-{commit[:12]}")
            self.stack.materialise(commit, tree)
            self._builds[commit] = self.filled(Build(hash_tree(tree)[:16], tree))
        return self._builds[commit]

    def top_build(self) -> Build:
        return self.build_of(self.stack.top)

    def base(self, below: Sequence[str] = ()) -> str:
        """The commit that candidates are made on: the top of the stack, with these attempts on it, which fit there."""
        if not below:
            return self.stack.top
        built = self.stack.build([self.change_of(name) for name in below], on=self.stack.top)
        assert isinstance(built, str), "who names them has seen that they fit"
        return built

    def build_candidate(self, attempt: Attempt) -> Build | Verdict:
        """The tree of an attempt: the stack, what lies between, its diff. A diff that does not fit is a verdict."""
        if attempt.id not in self._candidates:
            tree = self.fresh_tree(attempt.id)
            if attempt.below:
                changes = [self.change_of(name) for name in (*attempt.below, attempt.id)]
                commit = self.stack.build(changes, on=self.stack.top, rules=self.rules)
                if isinstance(commit, Conflict):
                    return Verdict(name="broken", reason=f"it does not fit on what lies below it: {commit.reason}")
                self.stack.materialise(commit, tree)
            else:
                found = self.stack.materialise_candidate(attempt.candidate.diff, tree, self.rules, on=attempt.base)
                if isinstance(found, PatchFinding):
                    return Verdict(name=found.kind, reason=found.reason)
            self._candidates[attempt.id] = Build(hash_tree(tree)[:16], tree, handed_on=self._handed_on(attempt))
        return self._candidates[attempt.id]

    def _handed_on(self, attempt: Attempt) -> Path | None:
        """What the stack below has compiled already, and need not be compiled again. None where the time for compiling
        is the question, and where it is so large that copying it for every worker takes longer.
        """
        cache = None if attempt.candidate.step == "compile_model" else self.top_build().cache
        return cache if cache is not None and bytes_in(cache) <= HANDED_ON_BYTES else None

    def fresh_tree(self, name: str) -> Path:
        """The path of a tree that is not there yet."""
        tree = self.scratch / "trees" / name
        remove_tree(tree)
        tree.parent.mkdir(parents=True, exist_ok=True)
        return tree

    def forget(self, attempt: Attempt) -> None:
        """Its tree goes; who asks about it all the same has it built anew."""
        self._candidates.pop(attempt.id, None)
        self._checked.pop(attempt.id, None)
        remove_tree(self.scratch / "trees" / attempt.id)

    def checked(self, attempt: Attempt) -> Checked:
        """The correctness of an attempt, looked at once per run where it is right."""
        if attempt.id not in self._checked:
            build = self.build_candidate(attempt)
            assert isinstance(build, Build), "what does not apply has its verdict already"
            evidence, known = self.attempts.check(attempt.id), self._with_kept_cache(build)
            if evidence is not None and known is not None:  # by an earlier command, which may have compiled for minutes
                found = Checked(Finding(None, "", evidence), known)
            else:
                found = self.referee.check(build)
                if found.finding.verdict is None and self.attempts.has(attempt.id):
                    self._keep_cache(found.build)
                    self.attempts.save_check(attempt.id, found.finding.evidence)
            self._checked = {attempt.id: found}
        return self._checked[attempt.id]

    def looked_at_kernels(self, attempt: Attempt) -> Looked:
        """What a compiler makes of its Triton kernels for the architectures of this run. Raises: SandboxError."""
        if not self.architectures:
            return Looked()
        build = self.build_candidate(attempt)
        assert isinstance(build, Build), "an attempt whose diff does not apply has its verdict already"
        setting = self.referee.setting
        gate = Gate(Compiler(setting.sandbox, setting.python, setting.scratch), self.architectures)
        return gate.look(build.tree, self.config.entry, attempt.candidate.diff)

    @property
    def caches(self) -> KeptCaches:
        return KeptCaches(self.run_dir / "caches")

    @property
    def architectures(self) -> tuple[str, ...]:
        """The device's own, where it is one of AMD's that is known and no other was asked for."""
        own = str(self.workload.environment.get("gfx") or "").partition(":")[0]
        return self.config.arch or ((own,) if own in ARCHITECTURES else ())

    def compile_baseline(self, mode: str) -> Build:
        """The pristine tree under one plain line of torch.compile; filled again after a resume. Raises: WorkerFault."""
        build = self.compile_baselines[mode]
        if build.cache is None:
            self.compile_baselines[mode] = self.filled(build)
        return self.compile_baselines[mode]

    def use(self, known: SessionStart) -> None:
        """Judge by what was measured at the start of this run."""
        self.referee.use_noise(known.aa)
        self.budget.restart_s = known.aa.wall_s / max(1, len(known.aa.log_ratios))
        self.referee.own_tests = known.own_tests

    # -- profiles

    def profile(self, name: str, build: Build) -> Profile:
        """Where a build's time goes; kept in the run's folder, so that it is looked at once."""
        known = measurements.profile(self.run_dir, name)
        if known is None:
            self.say("profiling", 0, 0)
            file = measurements.profile_file(self.run_dir, name)
            reached, notes = reach.ceilings(self.referee.setting, self.workload.environment)
            collector = Collector(self.referee.setting, self.workload, reached, PROFILED_CALLS)
            known = collector.profile(build, file.with_name(f"{name}-trace.json.gz"))
            known.notes += notes
            measurements.keep(known, file)
        return known

    def at_most(self, step: str) -> StepCeiling | None:
        """What a step can gain on the stack that it began with, by the profile of the original or of what an audit
        left of it: what is needless there was no bound for anything.
        """
        before = list(itertools.takewhile(lambda row: row.step != step, self.ledger.rows))
        profile = measurements.profile(self.run_dir, AUDITED) if step != "audit_compute" else None
        if profile is not None:
            before = [row for row in before if row.step != "audit_compute"]
        profile = profile or measurements.profile(self.run_dir, "baseline")
        if profile is None:
            return None
        gained = math.prod(row.speedup.median for row in before if row.verdict == "kept" and row.speedup)
        return on_faster(profile.steps, step, gained)

    # -- the stack and the ledger

    def change_of(self, attempt_id: str) -> Change:
        """What an attempt becomes on the stack; the same again at any time, so that a stack can be rebuilt."""
        attempt, verdict = self.attempts.load(attempt_id), self.attempts.verdict(attempt_id)
        row = self.ledger.find(attempt_id)
        return Change(
            attempt_id,
            attempt.candidate.diff,
            commit_message(attempt, verdict, self.config),
            self.created_unix + (row.seq if row is not None else len(self.ledger.rows)),
            attempt.base,
        )

    def record(self, attempt: Attempt, verdict: Verdict, stack: list[str] | None = None) -> None:
        """One row for an attempt. `stack`: the attempts on the stack from now on. A second time changes nothing."""
        if self.ledger.find(attempt.id) is not None:
            return
        candidate = attempt.candidate
        self.ledger.append(
            NewRow(
                attempt_id=attempt.id,
                time=datetime.now(UTC),
                step=candidate.step,
                key=candidate.key,
                role=candidate.role,
                title=candidate.shown,
                rationale=candidate.rationale,
                predicted_gain=candidate.predicted_gain,
                diff_digest=candidate.digest,
                base=attempt.base,
                below=attempt.below,
                verdict=verdict.name,
                reason=verdict.reason,
                speedup=verdict.speedup,
                evidence=verdict.evidence,
                cost=cost_of(verdict, candidate),
                stack=None if stack is None else tuple(stack),
            )
        )

    def follow_ledger(self) -> str:
        """Make the stack what the ledger says; returns the new top."""
        acceptance.follow(self.ledger, self.stack, self.change_of)
        return self.stack.top

    def stacked(self) -> list[str]:
        """The attempts on the stack, by the ledger."""
        return acceptance.wanted_stack(self.ledger)

    def stack_without(self, attempt_id: str) -> str | None:
        """The commit of another version of the stack, without one change; None when later changes need it."""
        changes = [self.change_of(name) for name in self.stacked() if name != attempt_id]
        built = self.stack.build(changes)
        return None if isinstance(built, Conflict) else built

    def adopt_build(self, attempt: Attempt, commit: str) -> None:
        """The build that was judged is the build of the commit it became."""
        if attempt.id in self._checked:
            self._builds[commit] = self._checked[attempt.id].build
            self._keep_cache(self._builds[commit])

    # -- proposals

    def view(self, below: Sequence[str] = ()) -> View:
        """What was seen when a base of candidates ran, and the tree in which rewriters find it.

        What cannot be observed is asked once. Raises: WorkerFault.
        """
        base, known = self.base(below), self._observed.get(self.stack.top)
        if base not in self._observed:
            self.subject = "the top of the stack"
            self.say("observing", 0, 0)
            found, before = self._seen(base), self._observed
            self._observed = {base: found} if known is None else {self.stack.top: known, base: found}
            for gone in before.keys() - self._observed.keys():
                remove_tree(self.scratch / "trees" / f"view-{gone[:12]}")
        found = self._observed[base]
        if isinstance(found, WorkerFault):
            raise found
        return found

    def _seen(self, commit: str) -> View | WorkerFault:
        try:
            build = self.build_of(commit)
            seen = self.observer.observe(build)
            return overlay.view(build.tree, self.config.entry, seen, self.fresh_tree(f"view-{commit[:12]}"))
        except WorkerFault as fault:
            return fault

    def request(self, step: str, below: Sequence[str] = ()) -> ProposalRequest:
        """The state of the run, for one step. Raises: WorkerFault."""
        view, known, base = self.view(below), measurements.session_start(self.run_dir), self.base(below)
        stacked = self.stacked()
        return ProposalRequest(
            step=step,
            base=self.build_of(base).tree,
            tree=view.tree,
            entry=self.config.entry,
            entry_is_protected=self.workload.form != "kernelbench",
            observation=view.observation,
            platform=self.platform,
            attempts=[past_of(row, stacked) for row in self.ledger.rows],
            judged_here=self.judged_on(base),
            cases=[case.for_script() for case in self.workload.cases],
            steps=self.config.steps,
            tune=partial(self._tune, base) if self.platform.triton else None,
            compile_pays={"compile_model", "compose_stack"} <= set(self.config.steps)
            and known is not None
            and known.compile_pays(self.referee.delta),
            tuning_pays=known is not None
            and known.tuning_pays(self.referee.delta if self.platform.device == "cuda" else 0.0),
            recording_pays=known is not None
            and self.platform.device == "cuda"
            and known.recording_pays(self.referee.delta),
            compile_endless=known is not None and known.compile_endless,
            compile_breaks=None if known is None else known.compile_breaks,
        )

    def judged_on(self, base: str) -> set[str]:
        """Digests of what was judged on this very commit, in whichever step."""
        return {row.diff_digest for row in self.ledger.rows if row.base == base}

    def propose(
        self, step: str, below: Sequence[str] = (), *, looking: bool = False, by_itself: bool = False
    ) -> tuple[list[Candidate], str]:
        """Candidates of a step for the stack with these attempts on it, or the reason why there are none."""
        try:
            request = replace(self.request(step, below), looking=looking, by_itself=by_itself)
            return self.proposer.propose(request)
        except WorkerFault as fault:
            return [], f"the stack could not be observed: {fault}"

    def _tune(self, base: str) -> Tuned:
        """Asked once for each base. Raises: CannotRewrite."""
        if base not in self._tuned:
            self.say("trying launches of our kernels", 0, 0)
            try:
                self._tuned = {base: self.observer.tune(self.build_of(base))}
            except WorkerFault as fault:
                raise CannotRewrite(f"the tuner failed: {fault}") from fault
        return self._tuned[base]

    def expecting(self, steps: Sequence[str]) -> int:
        """How many of these steps have something to try, as far as can be told from the stack as it is."""
        try:
            return sum(self.proposer.expects(self.request(name)) for name in steps)
        except WorkerFault:
            return 0

    def sites(self) -> list[Site]:
        """The places worth changing. Raises: WorkerFault."""
        return self.proposer.sites(self.request("locate_layers"))

    def advice(self) -> list[str]:
        """What only the user can do; nothing where the stack cannot be observed."""
        try:
            return self.proposer.advice(self.request("compile_model"))
        except WorkerFault:
            return []


def stack_profile(commit: str) -> str:
    """The name of the profile of one version of the stack."""
    return f"stack-{commit[:12]}"
