"""A place to work out one candidate: the tools of a run, on its own tree, for a model or whoever else asks.

It asks the referee and decides nothing. What comes of it is a `Candidate`, judged like any other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent.context import RunContext, stack_profile
from agent.records.attempts import Attempt
from agent.reporting import isa_page
from agent.repository.tree_copy import copy_tree
from agent.skill_packs import Packs, PackUnusable
from tools.candidate import Candidate
from tools.command import Commands, Ran
from tools.errors import IncumbentFails, ToolError
from tools.isa.compile import Compiler, Source
from tools.isa.gate import Looked
from tools.judging.comparison import Comparison
from tools.judging.correctness import Finding
from tools.judging.measure import ComparisonRequest
from tools.judging.verdict import Verdict
from tools.judging.worker import WorkerFault
from tools.profiler.result import Profile
from tools.registry import Registry, ToolFault, files, judging, trying
from tools.registry.judging import Tried
from tools.registry.worktree import Worktree, may_hold_secrets
from tools.tree_removal import remove_tree

QUICK_RESTARTS = 3
REGISTRY = Registry([*files.TOOLS, *judging.TOOLS, *trying.TOOLS])


@dataclass
class Workbench:
    """The session of the tools for one step, on the stack as it is when it is opened."""

    ctx: RunContext
    step: str
    worktree: Worktree
    base: str
    packs: Packs = field(default_factory=Packs.of)
    _looked_at: Attempt | None = None  # the draft whose tree is there
    _kernels: Looked | None = None  # of it

    @classmethod
    def open(cls, ctx: RunContext, step: str, name: str) -> Workbench:
        """`name` is that of the folder, another for each. Raises: WorkerFault where the stack cannot be observed."""
        return cls(ctx, step, _worktree(ctx, f"bench-{name}"), ctx.stack.top, Packs.of(ctx.config.skills))

    def renew(self) -> bool:
        """Begin again on the stack as it is now, where it has changed; False where it has not. Raises: ToolFault."""
        if self.ctx.stack.top == self.base:
            return False
        self.reset()
        return True

    def reset(self) -> None:
        """Take all changes back. Raises: ToolFault where the stack cannot be observed, and then nothing is changed."""
        try:
            worktree = _worktree(self.ctx, self.worktree.work.name)
        except WorkerFault as fault:
            raise ToolFault(f"The stack cannot be looked at: {fault}") from fault
        self.worktree, self.base = worktree, self.ctx.stack.top

    def candidate(
        self, title: str, rationale: str, predicted_gain: float | None = None, enables: str = ""
    ) -> Candidate:
        """What was written, to be judged. Raises: ToolFault when nothing was, or the same was judged before."""
        found = Candidate(
            step=self.step,
            title=title,
            rationale=rationale,
            diff=self._diff(),
            predicted_gain=predicted_gain,
            enables=enables,
            origin="llm",
        )
        for row in self.ctx.ledger.rows:
            if (row.diff_digest, row.base) == (found.digest, self.base):
                raise ToolFault(
                    f"The same change was judged before ({row.title}): {row.verdict}. {row.reason}",
                    "Change something, or try another idea.",
                )
        return found

    # -- what the tools ask

    @property
    def noise_floor(self) -> float:
        return self.ctx.referee.delta

    def verify(self) -> Finding:
        attempt = self._draft()
        found = self.ctx.builds.candidate(attempt)
        if isinstance(found, Verdict):
            return Finding(found.name, found.reason)
        if self._kernels is None:
            self._kernels = self.ctx.builds.looked_at_kernels(attempt)
        if self._kernels.faults:
            return Finding("broken", "; ".join(self._kernels.faults))
        return self.ctx.builds.checked(attempt).finding

    def measure(self) -> Comparison:
        """Raises: ToolFault when it is not right, and so nothing is timed."""
        attempt = self._draft()
        finding = self.verify()
        if finding.verdict is not None:
            raise ToolFault(f"It is {finding.verdict}: {finding.reason}", "Only what is right is timed.")
        self.ctx.display.subject = "a draft"
        request = ComparisonRequest(
            "quick look",
            self.ctx.builds.top(),
            {"candidate": self.ctx.builds.checked(attempt).build},
            lambda found: len(found.log_ratios) >= QUICK_RESTARTS,
            progress=lambda n: self.ctx.display.say("a quick look", n, QUICK_RESTARTS),
            doing=self.ctx.display.say,
        )
        try:
            return self.ctx.referee.clock.compare(request).only
        except IncumbentFails as fault:
            raise ToolFault(f"The stack below it fails when it is timed: {fault.message}") from fault

    def profile(self, which: Literal["original", "stack", "candidate"]) -> Profile:
        try:
            if which == "original":
                return self.ctx.builds.profile_original()
            if which == "stack":
                return self.ctx.builds.profile(stack_profile(self.base), self.ctx.builds.top())
            attempt = self._draft()
            finding = self.verify()
            if finding.verdict is not None:
                raise ToolFault(f"It is {finding.verdict}: {finding.reason}", "Only what is right is profiled.")
            return self.ctx.builds.profile(attempt.id, self.ctx.builds.checked(attempt).build)
        except WorkerFault as fault:
            raise ToolFault(f"It cannot be profiled: {fault}") from fault

    def attempts(self) -> Sequence[Tried]:
        return [
            Tried(step=row.step, title=row.title, verdict=row.verdict, reason=row.reason, speedup=row.speedup)
            for row in self.ctx.ledger.rows
        ]

    def run(self, command: str, timeout_s: float) -> Ran:
        setting = self.ctx.referee.setting
        commands = Commands(setting.sandbox, setting.python, setting.scratch, setting.limits.memory_bytes)
        with self._without_secrets(self._tree()) as tree:
            return commands.run(tree, command, timeout_s)

    def isa(self, file: str, kernel: str, launch: str, architectures: Sequence[str]) -> str:
        tree, setting = self._tree(), self.ctx.referee.setting
        for name in filter(None, (file, launch)):
            self.worktree.read(name)  # says what is wrong with a path
            if not (tree / name).is_file():
                raise ToolFault(f"{name} is not part of your candidate yet.", "Write to it first.")
        source = Source(tree / file, kernel or None, tree / launch if launch else None, every_kernel=not kernel)
        compiler = Compiler(setting.sandbox, setting.python, setting.scratch)
        try:
            found = compiler.compile(source, list(dict.fromkeys(architectures)))
            if found.refusal is not None:
                raise found.refusal.error(file)
        except ToolError as error:
            raise ToolFault(error.message, error.hint) from error
        return "\n".join(isa_page.lines(found))

    def skill(self, name: str) -> str:
        try:
            return self.packs.read(name) if name else self.packs.listed()
        except PackUnusable as error:
            raise ToolFault(error.message, error.hint) from error

    @contextlib.contextmanager
    def _without_secrets(self, tree: Path) -> Iterator[Path]:
        """The same tree, or where it has files that are not shown, a copy that has none of them."""
        secrets = [path for path in self.worktree.files() if may_hold_secrets(path)]
        if not secrets:
            yield tree
            return
        shown = self.ctx.builds.fresh_tree(f"{self.worktree.work.name}-shown")
        try:
            copy_tree(tree, shown, writable=True)
            for path in secrets:
                (shown / path).unlink(missing_ok=True)
            yield shown
        finally:
            remove_tree(shown)

    def _tree(self) -> Path:
        """The candidate's tree as it would be judged. Raises: ToolFault."""
        if not self.worktree.diff():
            return self.ctx.builds.top().tree
        found = self.ctx.builds.candidate(self._draft())
        if isinstance(found, Verdict):
            raise ToolFault(f"It is {found.name}: {found.reason}", "`diff` shows what you changed.")
        return found.tree

    def _diff(self) -> str:
        diff = self.worktree.diff()
        if not diff:
            raise ToolFault("Nothing is changed yet.", "Change a file with edit_file or write_file first.")
        return diff

    def _draft(self) -> Attempt:
        """The files as they are now, as an attempt that no ledger knows, under its own name on this stack.

        The tree of the draft before goes: there may be as many as there are calls of tools.
        """
        candidate = Candidate(step=self.step, title="a draft", rationale="", diff=self._diff(), origin="llm")
        name = f"draft-{self.base[:12]}-{candidate.digest[:16]}"
        attempt = Attempt(id=name, candidate=candidate, base=self.base)
        if self._looked_at is None or self._looked_at.id != name:
            if self._looked_at is not None:
                self.ctx.builds.forget(self._looked_at)
            self._looked_at, self._kernels = attempt, None
        return attempt


def _worktree(ctx: RunContext, name: str) -> Worktree:
    view, work = ctx.proposals.view(), ctx.builds.fresh_tree(name)
    copy_tree(view.tree, work, writable=True)
    return Worktree(ctx.builds.top().tree, work, ctx.builds.rules)
