"""Start or resume a run: the composition root, where the parts of a run are put together.

However a run ends, nothing that was proven is lost and no process is left running.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agent import environment, past_run
from agent.baselines import compile_builds
from agent.budget import Budget, TimeIsUp, longest_wait_s
from agent.builds import Builds
from agent.config import RunConfig
from agent.context import RunContext
from agent.errors import AgentError, BudgetTooShort
from agent.guard import stop_first
from agent.proposals import Proposals
from agent.proposers import InTurn, Platform, Proposer
from agent.proposers.playbook import Playbook
from agent.proposers.replay import Replay
from agent.records import measurements, run_folder
from agent.records.atomic_file import write_atomically
from agent.records.attempts import Attempts
from agent.records.ledger import Ledger
from agent.records.run_folder import RunFolder
from agent.records.run_records import RunRecords
from agent.reporting import outcome, wording
from agent.reporting.outcome import TargetFacts
from agent.reporting.progress import Display, Note, Progress, RunStarted
from agent.repository import export
from agent.repository.objects import merge_contents
from agent.repository.stack import Stack
from agent.repository.target import check_size, find_entry, find_target, import_target, tree_hash
from agent.running import Stoppable
from agent.step_names import STEPS
from agent.steps import summing_up
from sandbox import choose
from sandbox.choose import Agree, Wanted
from sandbox.contract import Sandbox
from sandbox.devices import lock, readings
from sandbox.devices.gpus import choose_gpu
from tools.diff.patch_rules import PatchRules
from tools.judging.measure import Clock
from tools.judging.open_referee import open_referee
from tools.judging.recorded_clock import RecordedClock, RecordingClock
from tools.judging.referee import Referee
from tools.judging.workload import Workload
from tools.observe import Observer
from tools.plain_text import one_line
from tools.tree_removal import remove_tree


def settle(config: RunConfig, agree: Agree) -> RunConfig:
    """The run with its sandbox chosen: the first that contains the target here, or none if that is agreed to.

    Raises: TargetError, SandboxUnavailable, SandboxError; what `agree` raises.
    """
    find_entry(find_target(config.target), config.entry)  # before anything is tried for it
    check_size(config.target)
    if config.sandbox != "auto":
        return config
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        found = choose.choose(_wanted(config, Path(folder)), agree)
    return config.model_copy(update={"sandbox": found.name})


Joins = Callable[[RunContext, Proposer], Proposer]
"""Adds a proposer to a run: takes its context and its present proposer, returns the one to use."""


def start(config: RunConfig, progress: Progress, joins: Joins | None = None) -> int:
    """Walk the steps for a new run; returns the exit status (0 also when nothing was kept). Raises: RatchetError."""
    begun = time.monotonic()
    config = settle(config, agree=lambda reasons: False)
    target = find_target(config.target)
    entry = find_entry(target, config.entry)
    folder = run_folder.create(config.model_copy(update={"target": target, "entry": entry}))
    with folder.locked():
        return _walk(folder, progress, joins, begun, resumed=False)


def resume(run_dir: Path, progress: Progress, joins: Joins | None = None) -> int:
    """Continue the run in `run_dir`. Raises: RatchetError (RunInUse, RunDamaged, RunOutdated)."""
    folder, begun = RunFolder(run_dir), time.monotonic()
    with folder.locked():
        folder.read()
        if (run_dir / "report.json").exists():
            progress.emit(Note(f"run {folder.run_id} is finished; its report is {run_dir / 'report.md'}"))
            return 0
        return _walk(folder, progress, joins, begun, resumed=True)


def _walk(folder: RunFolder, progress: Progress, joins: Joins | None, begun: float, *, resumed: bool) -> int:
    from agent import graph

    run, path = folder.read(), folder.path
    budget = Budget.left(run.config.budget_minutes, run.spent_s, begun)
    with (
        _scratch(path) as scratch,
        sandbox_for(
            run.config, path / "sandbox", (scratch, path / "pristine"), lambda said: progress.emit(Note(said))
        ) as sandbox,
    ):
        stoppable, ctx = Stoppable(sandbox), None
        try:
            with budget.enforced(), stop_first():
                ctx = _assemble(folder, scratch, stoppable, progress, budget, resumed=resumed)
                ctx.end_running = stoppable.stop_all
                if joins is not None:
                    ctx.proposals.proposer = joins(ctx, ctx.proposals.proposer)
                with contextlib.closing(ctx.referee), _handing_over(ctx), stop_first():
                    state = graph.walk(ctx, path / "checkpoint.sqlite")
        except TimeIsUp:
            if ctx is None or measurements.session_start(path) is None:
                raise BudgetTooShort(
                    f"The budget of {run.config.budget_minutes:g} minutes was over before the original was measured.",
                    hint="Give more by --budget-minutes, or show less work in the entry.",
                ) from None
            ctx.records.follow()
            state = summing_up.cut_short(graph.where_it_ended(path / "checkpoint.sqlite"), ctx)
        finally:
            try:
                stoppable.stop_all()  # threads that compile end with their processes
            finally:
                folder.spend(time.monotonic() - begun)
        ctx.builds.caches.clear()
        outcome.finish(ctx, folder, state, sandbox.promises(), wall_s=folder.read().spent_s)
    return 0


@contextlib.contextmanager
def _handing_over(ctx: RunContext) -> Iterator[None]:
    """When Ctrl-C or a signal stops the run, write what is proven so far as a patch, not yet as a branch."""
    try:
        yield
    except TimeIsUp:
        raise
    except KeyboardInterrupt:
        if proven := len(ctx.stack.commits()):
            patch = export.write_patch(ctx.stack, ctx.run_dir)
            ctx.progress.emit(Note(f"{wording.count(proven, 'change')} proven so far: {patch}"))
        raise


@contextlib.contextmanager
def _scratch(run_dir: Path) -> Iterator[Path]:
    """A folder for trees, inputs and caches; removed when the run ends, or by the next start after a kill."""
    scratch = run_dir / "work"
    remove_tree(scratch)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        remove_tree(scratch)


@contextlib.contextmanager
def sandbox_for(
    config: RunConfig, place: Path, owned: tuple[Path, ...], say: Callable[[str], None]
) -> Iterator[Sandbox]:
    """The sandbox of a settled run, with its GPU locked; leftovers of earlier commands in `place` are stopped first.

    Raises: AgentError where a mount is not there, DeviceBusy, NoSuchGpu, SandboxError.
    """
    if missing := config.missing_mount():
        hint = "What --mount names must be there whenever the target runs."
        raise AgentError(f"There is no {missing} to mount.", hint=hint)
    wanted = _wanted(config, place, owned)
    with contextlib.ExitStack() as held:
        if wanted.gpu is not None:
            held.enter_context(lock.acquire(wanted.gpu, run_id=config.run_id))
            if environment.read_host().container and not lock.reaches_other_containers():
                told = f"{wanted.gpu.name} is kept from other runs in this container only"
                say(f"{told}; for all runs of the machine, show {lock.FOLDERS[0]} of it to every container")
        assert config.sandbox != "auto"
        sandbox = choose.make(config.sandbox, wanted)
        sandbox.reap()
        if wanted.gpu is not None and (found := readings.load(wanted.gpu)).in_use:  # not by what an earlier run left
            say(f"{wanted.gpu.name} is in use by something else ({found}): timings will scatter")
        try:
            yield sandbox
        finally:
            sandbox.reap()
            shutil.rmtree(place, ignore_errors=True)


def _wanted(config: RunConfig, scratch: Path, owned: tuple[Path, ...] = ()) -> Wanted:
    return Wanted(str(config.python), scratch, owned, config.mounts, config.image, choose_gpu(config.gpu, os.environ))


def referee_for(config: RunConfig, pristine: Path, sandbox: Sandbox, scratch: Path, *, compiles: bool) -> Referee:
    """The referee of a settled run; `compiles` as in `open_referee`. Raises: ToolError, SandboxError, NoSuchGpu."""
    return open_referee(
        pristine,
        config.entry,
        python=str(config.python),
        sandbox=sandbox,
        scratch=scratch,
        threads=config.threads,
        start_timeout_s=longest_wait_s(config.budget_minutes, config.time_limit_s),
        check_timeout_s=longest_wait_s(config.budget_minutes),
        budget_s=60 * (config.budget_minutes or math.inf),
        seed=config.seed,
        original=config.target,
        gpu=choose_gpu(config.gpu, os.environ),
        compiles=compiles,
        memory_bytes=int(config.memory_gib * 2**30) if config.memory_gib else None,
    )


def _assemble(
    folder: RunFolder, scratch: Path, sandbox: Sandbox, progress: Progress, budget: Budget, *, resumed: bool
) -> RunContext:
    run = folder.read()
    config, path = run.config, folder.path
    stack = _stack(folder, progress)
    referee = referee_for(config, path / "pristine", sandbox, scratch, compiles=True)
    workload = referee.workload
    referee.clock = _clock(config, referee.clock)
    folder.write(run.model_copy(update={"environment": environment.describe(workload.environment)}))
    progress.emit(
        RunStarted(
            run_id=config.run_id,
            target=str(config.target),
            entry=config.entry,
            device=workload.device,
            run_dir=str(path),
            steps=STEPS,
            sandbox=sandbox.name,
            contained=sandbox.promises().contained,
            resumed=resumed,
        )
    )
    (path / "profiles").mkdir(exist_ok=True)
    ledger, attempts, platform = Ledger.open(path / "ledger.jsonl"), Attempts(path / "attempts"), _platform(workload)
    records = RunRecords(config, path, int(run.created.timestamp()), stack, ledger, attempts)
    display = Display(progress)
    rules = PatchRules(protected=protection(config, workload))
    builds = Builds(config, scratch, workload, referee, rules, records, display, compile_builds(referee, platform))
    observer = Observer(referee.setting, workload)
    proposals = Proposals(_proposer(config, path, stack), platform, observer, builds)
    ctx = RunContext(
        config=config,
        run_dir=path,
        progress=progress,
        display=display,
        workload=workload,
        platform=platform,
        referee=referee,
        stack=stack,
        ledger=ledger,
        attempts=attempts,
        records=records,
        builds=builds,
        proposals=proposals,
        budget=budget,
    )
    if config.model is not None or config.replay is not None:
        from agent.llm.open_model import open_model

        ctx.proposals.proposer = InTurn([ctx.proposals.proposer, open_model(ctx, resumed=resumed)])
    for note in workload.notes:
        progress.emit(Note(f"{config.entry}: {one_line(note, 300)}"))
    referee.say, referee.hurried = display.say, ctx.budget.too_dear
    records.follow()
    known = measurements.session_start(path)
    if known is not None:
        ctx.use(known)
        referee.prepare_compiler()  # else with what is done at the start
    return ctx


def _stack(folder: RunFolder, progress: Progress) -> Stack:
    """The stack, made from a copy of the target the first time."""
    path, run = folder.path, folder.read()
    if not (path / "stack").exists():
        before = tree_hash(run.config.target)
        imported = import_target(run.config.target, path / "pristine")
        facts = TargetFacts(tree_hash=before, notes=list(imported.notes))
        write_atomically(path / "target.json", facts.model_dump_json(indent=1) + "\n")
        # last: an existing stack means that everything else is there
        Stack.create(path / "stack", imported, time_unix=int(run.created.timestamp()))
    stack = Stack.open(path / "stack")
    for note in outcome.target_notes(path, stack):
        progress.emit(Note(note))
    return stack


def _proposer(config: RunConfig, run_dir: Path, stack: Stack) -> Proposer:
    """Raises: RunInUse, RunDamaged, NothingWasKept."""
    if config.revalidates is None:
        return Playbook()
    return Replay(past_run.kept_changes(run_dir, config.revalidates), partial(merge_contents, stack.git))


def _clock(config: RunConfig, live: Clock) -> Clock:
    if config.replay_clock is not None:
        return RecordedClock(config.replay_clock)
    return RecordingClock(live, config.record_clock) if config.record_clock is not None else live


def _platform(workload: Workload) -> Platform:
    told = workload.environment
    on_gpu = workload.device == "cuda"
    return Platform(
        device=workload.device,
        rocm=bool(told.get("hip")),
        gfx=str(told.get("gfx") or ""),
        triton=on_gpu and bool(told.get("triton")),
        cpp_compiler=bool(told.get("cpp_compiler")),
        torch=str(told.get("torch")),
    )


def protection(config: RunConfig, workload: Workload) -> Callable[[str], str | None]:
    """Why a candidate may not touch a path of this target, or None."""

    def protected(path: str) -> str | None:
        *folders, name = path.split("/")
        if path == config.entry and workload.form != "kernelbench":
            return "it is the entry, which says how the target is used"
        if name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py" or "tests" in folders:
            return "it is a test"
        return None

    return protected
