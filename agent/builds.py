"""The builds of a run: trees of the stack and of candidates, filled, checked and profiled once each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from agent.config import RunConfig
from agent.records import measurements
from agent.records.attempts import Attempt
from agent.records.kept_caches import KeptCaches, bytes_in
from agent.records.run_records import RunRecords
from agent.reporting.progress import Display
from agent.repository.stack import Conflict
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
from tools.judging.worker import Build
from tools.judging.workload import Workload
from tools.profiler import reach
from tools.profiler.collect import Collector
from tools.profiler.result import Profile
from tools.tree_removal import remove_tree

HANDED_ON_BYTES = 1 << 30  # of a compile cache
# rewriters, of which no change is what it says where calls are not recorded
RECORDING = ("capture", "compile_and_capture")
PROFILED_CALLS, PROFILED_S = 5, 0.5  # of each case, about: profiles say where to look, and decide nothing


@dataclass
class Builds:
    config: RunConfig
    scratch: Path
    workload: Workload
    referee: Referee
    rules: PatchRules
    records: RunRecords
    display: Display
    compile_baselines: dict[str, Build] = field(default_factory=dict)
    _of_commits: dict[str, Build] = field(default_factory=dict)
    _candidates: dict[str, tuple[Attempt, Build]] = field(default_factory=dict)  # by id, which another may get
    _checked: dict[str, Checked] = field(default_factory=dict)  # by key of the build: what was looked at is that code
    _pristine: Checked | None = None
    _checking: Lock = field(default_factory=Lock)  # held until that is known: several threads ask for it

    def pristine_checked(self) -> Checked:
        """The pristine build judged like a candidate, once per run: it must pass its own check."""
        with self._checking:
            if self._pristine is None:
                known = self._with_kept_cache(self.referee.pristine)
                self._pristine = Checked(Finding(None, ""), known) if known else self.referee.check_pristine()
                self._keep_cache(self._pristine.build)
            return self._pristine

    def filled(self, build: Build) -> Build:
        """With its compile cache: the one that was kept, else filled now and kept. Raises: WorkerFault."""
        if (known := self._with_kept_cache(build)) is not None:
            return known
        filled = self.referee.fill(build)
        self._keep_cache(filled)
        return filled

    def _with_kept_cache(self, build: Build) -> Build | None:
        cache = self.caches.get(build.key)
        return None if cache is None else replace(build, cache=self.referee.grounds.watch(cache))

    def forget_cache(self, attempt: Attempt) -> None:
        if (known := self._candidates.get(attempt.id)) is not None:
            self.caches.drop(known[1].key)

    def _keep_cache(self, build: Build) -> None:
        if build.cache is not None:
            self.caches.put(build.key, build.cache)

    def of(self, commit: str) -> Build:
        """The tree of a commit of the stack, with its compile cache filled. Raises: WorkerFault."""
        if commit == self.records.stack.base:
            return self.pristine_checked().build
        if commit not in self._of_commits:
            tree = self.fresh_tree(f"stack-{commit[:12]}")
            self.records.stack.materialise(commit, tree)
            self._of_commits[commit] = self.filled(Build(hash_tree(tree)[:16], tree))
        return self._of_commits[commit]

    def to_read(self, commit: str) -> Build:
        """The same, where it is not timed: the original as it came, before it is checked."""
        return self.referee.pristine if commit == self.records.stack.base else self.of(commit)

    def top(self) -> Build:
        return self.of(self.records.stack.top)

    def candidate(self, attempt: Attempt) -> Build | Verdict:
        """The tree of an attempt: the stack, what lies between, its diff. A diff that does not fit is a verdict."""
        known = self._candidates.get(attempt.id)
        if known is None or known[0] != attempt:
            tree, stack = self.fresh_tree(attempt.id), self.records.stack
            if attempt.below:
                changes = [self.records.change_of(name) for name in (*attempt.below, attempt.id)]
                commit = stack.build(changes, on=stack.top, rules=self.rules)
                if isinstance(commit, Conflict):
                    return Verdict(name="broken", reason=f"it does not fit on what lies below it: {commit.reason}")
                stack.materialise(commit, tree)
            else:
                found = stack.materialise_candidate(attempt.candidate.diff, tree, self.rules, on=attempt.base)
                if isinstance(found, PatchFinding):
                    return Verdict(name=found.kind, reason=found.reason)
            known = attempt, Build(hash_tree(tree)[:16], tree, handed_on=self._handed_on(attempt))
            self._candidates[attempt.id] = known
        return known[1]

    def _handed_on(self, attempt: Attempt) -> Path | None:
        """What the stack below has compiled already, and need not be compiled again. None where the time for compiling
        is the question, and where it is so large that copying it for every worker takes longer.
        """
        cache = None if attempt.candidate.step == "compile_model" else self.top().cache
        return cache if cache is not None and bytes_in(cache) <= HANDED_ON_BYTES else None

    def fresh_tree(self, name: str) -> Path:
        """The path of a tree that is not there yet."""
        tree = self.scratch / "trees" / name
        remove_tree(tree)
        tree.parent.mkdir(parents=True, exist_ok=True)
        return tree

    def forget(self, attempt: Attempt) -> None:
        """Remove its tree; it is built again when it is asked for."""
        if (known := self._candidates.pop(attempt.id, None)) is not None:
            self._checked.pop(known[1].key, None)
        remove_tree(self.scratch / "trees" / attempt.id)

    def checked(self, attempt: Attempt) -> Checked:
        """The correctness of an attempt, looked at once per run where it is right."""
        build = self.candidate(attempt)
        assert isinstance(build, Build), "what does not apply has its verdict already"
        if build.key not in self._checked:
            evidence, known = self.records.attempts.check(attempt.id), self._with_kept_cache(build)
            if evidence is not None and known is not None:  # by an earlier command, which may have compiled for minutes
                found = Checked(Finding(None, "", evidence), known)
            else:
                found = _as_it_says(attempt, self.referee.check(build))
            self.know(attempt, found)
        return self._checked[build.key]

    def know(self, attempt: Attempt, found: Checked) -> None:
        """Use what is known of it, and keep what a resumed run may use."""
        self._checked[found.build.key] = found
        if found.finding.verdict is None and self.records.attempts.has(attempt.id):
            self._keep_cache(found.build)
            self.records.attempts.save_check(attempt.id, found.finding.evidence)

    def looked_at_kernels(self, attempt: Attempt) -> Looked:
        """What a compiler makes of its Triton kernels for the architectures of this run. Raises: SandboxError."""
        if not self.architectures:
            return Looked()
        build = self.candidate(attempt)
        assert isinstance(build, Build), "an attempt whose diff does not apply has its verdict already"
        setting = self.referee.setting
        gate = Gate(Compiler(setting.sandbox, setting.python, setting.scratch), self.architectures)
        return gate.look(build.tree, self.config.entry, attempt.candidate.diff)

    @property
    def caches(self) -> KeptCaches:
        return KeptCaches(self.records.run_dir / "caches")

    @property
    def architectures(self) -> tuple[str, ...]:
        """The device's own, where it is one of AMD's that is known and no other was asked for."""
        own = str(self.workload.environment.get("gfx") or "").partition(":")[0]
        return self.config.arch or ((own,) if own in ARCHITECTURES else ())

    def compile_baseline(self, mode: str) -> Build:
        """The pristine tree under one plain line of torch.compile; filled again after a resume. Raises: WorkerFault."""
        build = self.compile_baselines[mode]
        if build.cache is None:
            self.display.say("compiling", subject=f"plain torch.compile ({mode})")
            self.compile_baselines[mode] = self.filled(build)
        return self.compile_baselines[mode]

    def adopt(self, attempt: Attempt, commit: str) -> None:
        """The build that was judged is the build of the commit it became."""
        build = self.candidate(attempt)
        if isinstance(build, Build) and build.key in self._checked:
            committed = self.fresh_tree(f"stack-{commit[:12]}")
            self.records.stack.materialise(commit, committed)
            assert hash_tree(committed)[:16] == build.key, f"{attempt.id} is not what was judged"
            remove_tree(committed)
            self._of_commits[commit] = self._checked[build.key].build
            self._keep_cache(self._of_commits[commit])

    def profile_original(self) -> Profile:
        return self.profile("baseline", self.pristine_checked().build)

    def profile(self, name: str, build: Build) -> Profile:
        """Where a build's time goes; kept in the run's folder, so that it is looked at once."""
        known = measurements.profile(self.records.run_dir, name)
        if known is None:
            self.display.say("profiling", 0, 0)
            file = measurements.profile_file(self.records.run_dir, name)
            reached, notes = reach.ceilings(self.referee.setting, self.workload.environment)
            call_s = sum(case.call_s for case in self.workload.cases)
            calls = max(1, min(PROFILED_CALLS, round(PROFILED_S / max(call_s, 1e-6))))
            collector = Collector(self.referee.setting, self.workload, reached, calls)
            known = collector.profile(build, file.with_name(f"{name}-trace.json.gz"))
            known.notes += notes
            measurements.keep(known, file)
        return known


def _as_it_says(attempt: Attempt, checked: Checked) -> Checked:
    """A change that says that it records calls, and does not, is broken."""
    why = checked.finding.evidence.get("not_recorded")
    if attempt.candidate.key.rewriter not in RECORDING or not why or checked.finding.verdict:
        return checked
    broken = replace(checked.finding, verdict="broken", reason=f"its calls cannot be recorded: {why[0]}")
    return replace(checked, finding=broken)
