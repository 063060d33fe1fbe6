"""Is a candidate right? The policy: what is compared with what, and what decides.

Against the pristine model in float64 (or the widest that runs, recorded) by the error-ratio rule of `accuracy.py`, on
secret seeds, unseen shapes and other value patterns, with gradients and with what it raises at, under a second state
dict, after deepcopy, after moved and scaled parameters, repeated, and with poisoned outputs. Never runs code of a
target here: it reads bytes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.errors import workload_error
from tools.judging import accuracy, tensors
from tools.judging.accuracy import LeafError
from tools.judging.described import Answer
from tools.judging.digest import digest
from tools.judging.script import Call, Played, Script
from tools.judging.tensors import BadTensorFile, Leaf, Rows, Saved
from tools.judging.verdict import Verdict, VerdictName
from tools.judging.worker import Worker, WorkerFault

LARGE_BYTES = 64 << 20  # of a call's output
BEHIND = "value behind integers"  # asked for where a candidate chooses by the same ones: it may choose by others


@dataclass(frozen=True)
class Rules:
    """What the entry declares about results: `tolerance` replaces the error-ratio rule, `compare` everything."""

    outputs: bool = False
    compare: bool = False
    tolerance: dict[str, float] = field(default_factory=dict)

    @property
    def needs_reference(self) -> bool:
        return self.outputs or self.compare


@dataclass(frozen=True)
class Compared:
    """One call of a candidate beside the pristine one in its own precision and the truth."""

    label: str
    group: str  # calls whose errors are pooled: same phase, shape and value pattern
    phase: str
    candidate: Path
    baseline: Path
    truth: Path
    commitment: tuple[int, str] | None = None  # key and digest it replied with
    rounded: Path | None = None  # what the original might have answered: see `Workload.other_roundings`
    rows: Rows = ()  # of large tensors: all that is compared, and all that the original's files have
    has_numbers: bool = True  # else integers say nothing: an order of what is no number is none
    is_rough: bool = False  # rounding moves the original's own answer by more than a bound could allow
    what: str = "output"  # or "gradient", or `BEHIND`


@dataclass(frozen=True)
class Finding:
    """The outcome of a check: `verdict` is None when everything passed."""

    verdict: VerdictName | None
    reason: str
    evidence: dict[str, Any] = field(default_factory=dict)
    may_be_chance: bool = False  # another process may be the cause: check again before blaming the candidate
    of_numbers: bool = False  # they are off by more than they may be, and that is all that was found

    def as_verdict(self, passes: str = "it passes the whole check") -> Verdict:
        name, reason = self.verdict or "right", self.reason if self.verdict else passes
        return Verdict(name=name, reason=reason, evidence={"correctness": self.evidence})


class _Failed(Exception):
    def __init__(self, verdict: VerdictName, reason: str, *, of_numbers: bool = False) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.of_numbers = verdict, reason, of_numbers


def judge_script(
    script: Script,
    candidate: Played,
    baseline: Played,
    truth: Played,
    inputs: Sequence[Path],
    rules: Rules,
    reference: Worker | None,
    rounded: Played | None = None,
) -> Finding:
    """Judge a played script. `reference` runs the entry's own `outputs` and `compare`, when declared; `rounded` is
    what the original might have answered, see `Workload.other_roundings`.
    """
    calls = []
    for index, step in enumerate(script.steps):
        if isinstance(step, Call) and step.asks != "refusal":
            draw = script.draws[step.draw]
            what = {"gradients": "gradient", "choices": BEHIND}.get(step.asks, "output")
            group = f"{what} {draw.case.phase}{dict(draw.case.shape)}{draw.variant}"
            saved = candidate.outputs[index], baseline.outputs[index], truth.outputs[index]
            other = None if rounded is None else rounded.outputs[index]
            rows = baseline.rows.get(index, ())
            said = candidate.digests[index] if _is_looked_at(saved[0]) else None
            how = draw.has_numbers, draw.is_rough, what
            calls.append(Compared(step.label, group, draw.case.phase, *saved, said, other, rows, *how))

    def judge(evidence: dict[str, Any]) -> None:
        _judge_calls(calls, rules, reference, evidence)
        _arguments(script, candidate, baseline, truth, inputs)
        _repeats(script, candidate, baseline, truth)
        _state(candidate, baseline, truth)
        _refusals(script, candidate, baseline)

    return _finding(judge, seeds=script.seeds)


def _is_looked_at(output: Path) -> bool:
    """Whether the commitment to it is: of large outputs that takes longest, and what they are bound by counts where
    calls are timed. Of those, secretly, every fourth.
    """
    with contextlib.suppress(OSError):
        return output.lstat().st_size <= LARGE_BYTES or secrets.randbelow(4) == 0
    return True


def judge_calls(calls: Iterable[Compared], rules: Rules, reference: Worker | None) -> Finding:
    """Form, commitment and values of each call. The files of a call are read before the next is asked for."""
    return _finding(lambda evidence: _judge_calls(calls, rules, reference, evidence))


def _finding(judge: Callable[[dict[str, Any]], None], **evidence: Any) -> Finding:
    try:
        judge(evidence)
    except _Failed as failed:
        return Finding(failed.verdict, failed.reason, evidence, of_numbers=failed.of_numbers)
    except BadTensorFile as error:
        return Finding("refused", f"it left a malformed file: {error}", evidence)
    return Finding(None, "", evidence)


def _judge_calls(calls: Iterable[Compared], rules: Rules, reference: Worker | None, evidence: dict[str, Any]) -> None:
    """Errors are pooled by group, so that one lucky baseline does not decide."""
    pooled: dict[tuple[str, int], tuple[LeafError, LeafError, str, str, str]] = {}
    counts: dict[tuple[str, int], Any] = {}  # by output
    labels: list[str] = []
    for call in calls:
        labels.append(call.label)
        evidence.update(calls=len(labels), checked=sorted({*labels}))
        _one_call(call, rules, reference, pooled, counts)
    for (_, index), (mine, theirs, dtype, label, what) in pooled.items():
        if why := accuracy.judge_leaf(mine, theirs, dtype):
            raise _Failed("wrong", f"{label}: {what} {index}: {why}", of_numbers=not mine.mismatch)
    for (what, index), counted in counts.items():
        if why := accuracy.judge_excess(counted):
            raise _Failed("wrong", f"{what} {index}: {why}", of_numbers=True)
    evidence["worst_row_error"] = max((mine.row for mine, *_ in pooled.values()), default=0.0)


def _one_call(
    call: Compared, rules: Rules, reference: Worker | None, pooled: dict[Any, Any], counts: dict[Any, Any]
) -> None:
    if not os.path.lexists(call.candidate):  # False as well where the worker has closed its folder to us
        raise _Failed("refused", f"{call.label}: it did not save what it returned")
    mine, theirs, truth = (tensors.read(path) for path in (call.candidate, call.baseline, call.truth))
    differs = accuracy.same_form(mine, theirs, truth)
    if differs and call.what == BEHIND:
        return
    if differs:
        raise _Failed("wrong", f"{call.label}: {differs}")
    if call.commitment is not None:  # only now, because the digest of a file of any size takes any time
        key, said = call.commitment
        if digest(mine.leaves, key) != said:
            raise _Failed("refused", f"{call.label}: the bytes are not those its reply committed to")
    mine = mine.some(call.rows)
    if rules.needs_reference and reference is not None:
        owner = _Owner(rules, reference)
        call, (mine, theirs, truth) = owner.select(call)
        if rules.compare:
            owner.compare(call)
            return
        if differs := accuracy.same_form(mine, theirs, truth):
            raise _Failed("wrong", f"{call.label}: what outputs() selects: {differs}")
    if rules.tolerance or theirs.shapes != truth.shapes:
        truth = theirs  # as where shapes depend on values, and a wider type has another number of them
    rounded = None if call.rounded is None else tensors.read(call.rounded)
    if rounded is not None and rounded.shapes != truth.shapes:
        rounded = None
    for index, (m, b, t) in enumerate(zip(mine.leaves, theirs.leaves, truth.leaves, strict=True)):
        if b.is_exact and not call.has_numbers:
            continue
        if rules.tolerance:
            if why := outside(m, b, rules, call.what):
                raise _Failed("wrong", f"{call.label}: {call.what} {index}: {why}")
            continue
        error, base = accuracy.leaf_error(m, t, b), accuracy.leaf_error(b, t, b)
        if call.what == BEHIND and (error.mismatch or not accuracy.is_rounding(accuracy.row_errors(m, t))):
            continue
        # with a truth, what the original errs is known, and is the bound
        is_rough = call.is_rough and t.dtype == b.dtype and not (b.is_exact or error.mismatch)
        if is_rough and accuracy.is_rounding(accuracy.row_errors(m, t)):
            continue
        if rounded is not None and m.dtype in ("float32", "complex64"):
            base = accuracy.allowing(base, rounded.leaves[index], t, b)
        counted = accuracy.excess(error, base, m.dtype)
        counts[call.what, index] = counts.get((call.what, index), 0) + counted
        held = pooled.get((call.group, index))
        if held is None:
            pooled[call.group, index] = (error, base, m.dtype, call.label, call.what)
        else:
            worse = error.mismatch or (error.lost, error.row) > (held[0].lost, held[0].row)
            label = call.label if worse else held[3]
            pooled[call.group, index] = (held[0].worse(error), held[1].worse(base), m.dtype, label, call.what)


@dataclass(frozen=True)
class _Owner:
    """The entry's own `outputs` and `compare`, applied in a reference worker to saved bytes.

    They run on the original's answer first: if that works, a failure on the candidate's is a finding about it.
    """

    rules: Rules
    reference: Worker

    def select(self, call: Compared) -> tuple[Compared, list[Saved]]:
        """The call with what `outputs` selects of each result. Raises: WorkloadError, _Failed, BadTensorFile."""
        if not self.rules.outputs:
            return call, [tensors.read(path) for path in (call.candidate, call.baseline, call.truth)]
        with self._by_the_entry():
            baseline, truth = (self._selected(path, call.phase) for path in (call.baseline, call.truth))
            rounded = None if call.rounded is None else self._selected(call.rounded, call.phase)
        with self._by_the_candidate(call):
            candidate = self._selected(call.candidate, call.phase)
        selected = replace(call, candidate=candidate, baseline=baseline, truth=truth, rounded=rounded)
        return selected, [tensors.read(path) for path in (candidate, baseline, truth)]

    def compare(self, call: Compared) -> None:
        """Raises: WorkloadError, _Failed when it says no."""
        with self._by_the_entry():
            self._compared(call.baseline, call)
        with self._by_the_candidate(call):
            answer = self._compared(call.candidate, call)
        if not answer.passed:
            raise _Failed("wrong", f"{call.label}: compare() says no: {answer.message}")

    def _selected(self, path: Path, phase: str) -> Path:
        into = self.reference.saved(f"{secrets.token_hex(8)}.selected")
        with self.reference.showing(path) as source:
            self.reference.ask("select", source=source, path=str(into), phase=phase)
        return into

    def _compared(self, path: Path, call: Compared) -> Answer:
        with self.reference.showing(path) as mine, self.reference.showing(call.baseline) as theirs:
            return self.reference.ask_for(Answer, "compare", candidate=mine, reference=theirs, phase=call.phase)

    @contextmanager
    def _by_the_entry(self) -> Iterator[None]:
        try:
            yield
        except WorkerFault as fault:
            entry = self.reference.setting.entry
            raise workload_error(fault.kind, fault.message, fault.where, entry, fault.ended) from fault

    @contextmanager
    def _by_the_candidate(self, call: Compared) -> Iterator[None]:
        try:
            yield
        except WorkerFault as fault:
            name = {"outputs_raised": "outputs() raises", "compare_raised": "compare() raises"}.get(fault.kind)
            how = name or f"the entry's own comparison fails ({fault.kind.replace('_', ' ')})"
            raise _Failed("wrong", f"{call.label}: {how} on it: {fault}") from fault


def _arguments(script: Script, candidate: Played, baseline: Played, truth: Played, inputs: Sequence[Path]) -> None:
    """An argument may change only as the pristine model changes it."""
    for index, path in candidate.arguments.items():
        step = script.steps[index]
        assert isinstance(step, Call)
        before, theirs, mine = (tensors.read(p) for p in (inputs[step.draw], baseline.arguments[index], path))
        differs = accuracy.same_form(mine, theirs)
        if differs:
            raise _Failed("wrong", f"{step.label}: its arguments afterwards: {differs}")
        # where the original fills or empties what it is given, no tensor has one of before to be compared with
        befores: Sequence[Leaf | None] = [None] * len(theirs.leaves)
        if before.forms == theirs.forms:
            befores = before.leaves
        wide: Sequence[Leaf | None] = [None] * len(theirs.leaves)
        if index in truth.arguments and len(found := tensors.read(truth.arguments[index]).leaves) == len(wide):
            wide = found
        for position, (b, t, m) in enumerate(zip(befores, theirs.leaves, mine.leaves, strict=True)):
            if t.same_bytes(m):
                continue
            if b is not None and b.same_bytes(t):
                raise _Failed("wrong", f"{step.label}: it changes argument {position}, which the original leaves alone")
            if not _as_right(m, t, wide[position]):
                raise _Failed("wrong", f"{step.label}: argument {position} ends up different from the original's")


def written(script: Script, baseline: Played, inputs: Sequence[Path]) -> set[int]:
    """The calls that change what they are given. Raises: BadTensorFile."""
    found = set()
    for index, path in baseline.arguments.items():
        step = script.steps[index]
        assert isinstance(step, Call)
        before, after = tensors.read(inputs[step.draw]), tensors.read(path)
        same = before.forms == after.forms
        if not same or not all(b.same_bytes(a) for b, a in zip(before.leaves, after.leaves, strict=True)):
            found.add(index)
    return found


def _as_right(mine: Leaf, theirs: Leaf, truth: Leaf | None) -> bool:
    """Whether what calls have written is as near the truth as the original's, the truth where there is no other."""
    known = truth is not None and (truth.shape, truth.is_exact) == (theirs.shape, theirs.is_exact)
    if truth is None or not known or theirs.is_exact or not accuracy.is_rounding(accuracy.row_errors(theirs, truth)):
        truth = theirs
    return not accuracy.fails(mine, truth, theirs)


def _repeats(script: Script, candidate: Played, baseline: Played, truth: Played) -> None:
    """The same input twice: as alike as the pristine model's two answers, or as its answer and the truth, or within the
    floor of the dtype. Libraries for a GPU choose by addresses among kernels that round otherwise, now and then.
    """
    first: dict[int, int] = {}
    for index, step in enumerate(script.steps):
        if not isinstance(step, Call) or not step.label.startswith(("repeat", "same pointers")):
            continue
        if step.draw not in first:
            first[step.draw] = index
            continue
        mine, theirs = (
            [tensors.read(played.outputs[i]) for i in (first[step.draw], index)] for played in (candidate, baseline)
        )
        mine = [each.some(baseline.rows.get(index, ())) for each in mine]
        wide = tensors.read(truth.outputs[index])
        if wide.shapes != theirs[0].shapes:
            wide = theirs[0]
        if theirs[0].forms != theirs[1].forms:
            continue  # each was compared with the original's, whose two have nothing to be compared in
        for position, (a, b, c, d, t) in enumerate(zip(*(s.leaves for s in (*mine, *theirs, wide)), strict=True)):
            allowed = accuracy.leaf_error(d, c, c).worse(accuracy.leaf_error(d, t, d))
            if accuracy.judge_leaf(accuracy.leaf_error(b, a, a), allowed, a.dtype):
                raise _Failed("wrong", f"{step.label}: output {position} is not the same as before")


def _state(candidate: Played, baseline: Played, truth: Played) -> None:
    """The state dict keeps its names, and holds after all calls what the pristine one holds."""
    if candidate.state is None or baseline.state is None:
        return
    mine, theirs = tensors.read(candidate.state).named(), tensors.read(baseline.state).named()
    wide = {} if truth.state is None else tensors.read(truth.state).named()
    if set(mine) != set(theirs):
        odd = sorted(set(mine) ^ set(theirs))[:3]
        raise _Failed("wrong", f"its state dict differs from the original's: {', '.join(odd)}")
    for name, leaf in mine.items():
        other = theirs[name]
        if (leaf.dtype, leaf.shape) != (other.dtype, other.shape):
            raise _Failed("wrong", f"{name} became {leaf.dtype}{list(leaf.shape)} in the state dict")
        if leaf.same_bytes(other):
            continue
        if not _as_right(leaf, other, wide.get(name)):
            raise _Failed("wrong", f"{name} holds other values after the calls than in the original")


def _refusals(script: Script, candidate: Played, baseline: Played) -> None:
    """What the original raises at, a candidate raises at: what callers catch, or a class of that or above it."""
    for index, theirs in baseline.raised.items():
        step, mine = script.steps[index], candidate.raised[index]
        assert isinstance(step, Call)
        if theirs and not mine:
            raise _Failed("wrong", f"{step.label}: it answers, where the original raises {theirs[0]}")
        if theirs and theirs[0] not in (*mine[:-1], mine[0]) and mine[0] not in theirs[:-1]:
            raise _Failed("wrong", f"{step.label}: it raises {mine[0]}, where the original raises {theirs[0]}")


def fault_verdict(fault: WorkerFault) -> tuple[VerdictName, str]:
    """What a worker's failure says about the candidate it ran."""
    if fault.kind in ("forged_reply", "interfered"):
        return "refused", str(fault)
    if fault.kind == "exited_as_success" or (fault.ended is not None and fault.ended.status == 0):
        return "refused", f"it exited with status 0 before replying: {fault}"
    if fault.kind == "state_rejected":
        return "wrong", f"a checkpoint of the original does not load: {fault}"
    return "broken", f"{fault.kind.replace('_', ' ')}: {fault}"


def outside(leaf: Leaf, original: Leaf, rules: Rules, what: str = "output") -> str:
    """How far it is from the original's beyond the declared tolerance, which is said of results: a gradient flows."""
    if what == "gradient":
        return "none flows" if accuracy.largest(original) and not accuracy.largest(leaf) else ""
    rtol, atol = (rules.tolerance.get(name, 0.0) for name in ("rtol", "atol"))
    return accuracy.within_tolerance(leaf, original, rtol, atol)
