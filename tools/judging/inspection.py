"""Read the workload of an entry in a sandbox, and test before any work starts that it can be judged.

Refused: a problem that cannot tell right from wrong, that differs between two runs of itself, or returns no tensors.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tools.judging import accuracy, imposters, tensors, variants
from tools.judging.asking import Inspection, answers
from tools.judging.correctness import Rules
from tools.judging.described import AsBuilt, Built, Described, LookedUp, Memory, SavedInit, Strengthened, what_is_wrong
from tools.judging.script import (
    CHANGES,
    ROUNDS,
    SEEDS,
    Case,
)
from tools.judging.tensors import Saved
from tools.judging.worker import Build, Setting, Worker, WorkerFault, blamed_on
from tools.judging.workload import INPUTS, Workload
from tools.plain_text import plain

ENLARGED = "enlarged"
# copies first, so that what is changed then is what the copy goes by
OF_MODULES = ("deepcopy", "pickle", "scale", "scale_buffers", "move", "replaced")
TRANSFORMS = (*(name for name in CHANGES if name != ENLARGED), *OF_MODULES, ENLARGED)
UNSEEN = 3
INTEGERS, MOST_SEEDS, MOST_SEEDS_S = 300, 64, 2.0  # of which one in a hundred is wrong; inputs, seconds of calls
# of a call, above which two threads are not asked for; on a GPU, calls that torch.compile records do not stand them
THREADS_S = 0.1
PICKLED_BYTES = 1 << 30  # of a state dict: more takes longer than what it could show is worth
STATES = 3  # tries of another state dict
DEGENERATE_SEEDS = 4
CALLS = 150  # that measuring the original takes: 6 restarts, each with 6 calls beside its copy and 20 in turns with it


def inspect(setting: Setting, pristine: Build, keep: Path, rng: random.Random) -> Workload:
    """Find the workload of the pristine tree and test that it can be judged. `keep` holds its files afterwards.

    Raises: WorkloadError (one kind for each thing that can be wrong with an entry).
    """
    keep.mkdir(parents=True, exist_ok=True)
    with (
        blamed_on(setting.entry),
        contextlib.closing(Inspection(Worker(setting, pristine, "reference"), keep)) as found,
    ):
        return _inspect(found, rng)


def _inspect(found: Inspection, rng: random.Random) -> Workload:
    told = _described(found.worker)
    found.constants, found.mode = list(told.constants), told.mode
    found.recipe = None if told.recipe is None else told.recipe.model_dump()
    saved_init = found.worker.ask_for(SavedInit, "save_init", path=str(found.worker.saved("init"))).saved
    init = found.worker.take("init", found.keep / "init") if saved_init else None
    is_module = found.worker.ask_for(Built, "build", mode=told.mode).is_module
    as_built = found.worker.ask_for(AsBuilt, "as_built", key=1) if is_module else None
    states = {"a": _state(found, "a", "save_state")} if is_module else {}
    cases, inputs = _measured(found, told, rng)
    cheap, notes, device = cases[0], [*told.notes], told.environment.device
    if states and not _add_second(states, found, cases, rng):
        notes.append("it is asked with no other state dict, since the original answers others without a number")
    _same_twice(found, cheap, rng)
    rules = Rules("outputs" in told.declares, "compare" in told.declares, told.tolerance.model_dump(exclude_none=True))
    known = {} if rules.compare else _telling_answers(found, cheap, rules, rng)
    unseen = _unseen_shapes(found, cases, rng)
    leading = {case.phase: case for case in reversed(cases)}  # the cheapest of each phase
    asked = {phase: variants.chosen(found, case, rules, rng) for phase, case in leading.items()}
    answered = {phase: tuple(filter(None, each.values())) for phase, each in asked.items()}
    refused = variants.refused(found, cheap, answered[cheap.phase], device, rng)
    transforms = _transforms(found, cheap, states, rules, rng) if is_module else ()
    not_asked = [kind for kind, variant in asked[cheap.phase].items() if not variant and kind not in refused]
    not_asked += [f"after {CHANGES.get(name, name)}" for name in TRANSFORMS if is_module and name not in transforms]
    usual, _ = found.run_once(cheap, rng.randrange(1 << 31))
    is_compared = not rules.needs_reference  # what these say is said of results of one call
    is_plain = told.mode == "inference" and is_compared
    peak_bytes = found.worker.ask_for(Memory, "memory").peak_bytes
    # in 16 bits, sums of what goes back err more than a bound on them could tell from wrong
    has_gradients = is_module and is_compared and not (_is_of_16_bits(states) or _under_autocast(told))
    return Workload(
        form=told.form,
        mode=told.mode,
        cases=tuple(cases),
        unseen=unseen,
        variants=answered,
        transforms=transforms,
        constants=tuple(found.constants),
        rules=rules,
        is_module=is_module,
        has_threads=is_plain and device == "cpu" and _answers_threads(found, cheap, rng, is_module),
        gradient_bytes=found.gradient_bytes(cheap, rng) if has_gradients else None,
        has_choices=is_plain and rules == Rules() and _is_exact(usual) and found.has_choices(cheap, rng),
        seeds=_seeds(usual, cheap, states),
        # from here on with other weights and types
        without_effect=_strengthen(found, states, cases, rng) if is_module else [],
        precision=_precision(found, cases, states, rules, known, rng) if is_module else "",
        init=init,
        states=states,
        environment=told.environment.model_dump(),
        inputs=inputs,
        peak_bytes=peak_bytes,
        recipe=found.recipe,
        looked_up={phase: rows for phase, rows in found.looked_up.items() if rows},
        refused=refused,
        as_built=as_built,
        not_asked=not_asked,
        notes=notes,
    )


def _measured(found: Inspection, told: Described, rng: random.Random) -> tuple[list[Case], list[list[Path]]]:
    """The declared cases with what a call of each takes, and inputs of each."""
    drawn: list[tuple[Case, list[Path], int]] = []  # the last: bytes in and out of a call
    for declared in told.cases:
        case = Case(declared.phase, declared.shape, declared.work)
        saved, _ = found.run_once(case, rng.randrange(1 << 31))
        if not saved.leaves:
            kind = plain(saved.structure.get("class", saved.structure.get("t")))
            raise WorkerFault("no_tensors", f"a call returned {kind}, with no tensor in it")
        _, elapsed = found.run_once(case, rng.randrange(1 << 31))
        found.looked_up[case.phase] = found.worker.ask_for(LookedUp, "lookups").rows
        call_s = elapsed + sum(known.call_s for known, *_ in drawn)
        if call_s * CALLS > found.worker.setting.budget_s:
            needed = f"measuring it takes {CALLS} of them, {call_s * CALLS / 60:.0f} minutes"
            raise WorkerFault("too_slow", f"a call takes {call_s:.1f} s, and {needed}")
        inputs = [found.take(found.draw(case, rng.randrange(1 << 31))) for _ in range(INPUTS)]
        case = replace(case, call_s=elapsed, input_bytes=inputs[0].stat().st_size)
        drawn.append((case, inputs, case.input_bytes + sum(leaf.nbytes for leaf in saved.leaves)))
    # the smallest first everywhere: what compiles itself must meet the shapes in the same order in every worker, and in
    # every command of a run, in which two of about the same time may change places
    drawn.sort(key=lambda each: each[2])
    return [case for case, *_ in drawn], [inputs for _, inputs, _ in drawn]


def _telling_answers(found: Inspection, case: Case, rules: Rules, rng: random.Random) -> dict[int, Saved]:
    """The original's by seed, which differ from those of all imposters. Raises: WorkerFault."""
    seeds = [rng.randrange(1 << 31) for _ in range(DEGENERATE_SEEDS)]
    rights = answers(found, case, rules, seeds)
    if name := imposters.passing(rights, rights[0], rules):
        seen = f"{name} would pass for the right answer to seed {seeds[0]} of {case.name}, in all its outputs"
        raise WorkerFault("degenerate", f"{seen} (other seeds: {', '.join(map(str, seeds[1:]))})")
    return dict(zip(seeds, rights, strict=True))


def _answers_threads(found: Inspection, case: Case, rng: random.Random, is_module: bool) -> bool:
    """Whether two may call it at once; not where calls write to a state: how often, threads would decide."""
    if case.call_s >= THREADS_S or (is_module and found.writes_state(case, rng)):
        return False
    return found.answers_two_threads(case, rng, 4 * ROUNDS)


def _seeds(saved: Saved, case: Case, states: Mapping[str, Path]) -> int:
    """Inputs enough to see that some of a few integers are wrong. In 16 bits the largest of some numbers is chance."""
    integers, call_s = sum(leaf.elements for leaf in saved.leaves), max(case.call_s, 1e-6)
    if not integers or not _is_exact(saved) or (states and _is_of_16_bits(states)):
        return SEEDS
    return max(SEEDS, min(MOST_SEEDS, INTEGERS // integers, int(MOST_SEEDS_S / call_s)))


def _is_exact(saved: Saved) -> bool:
    return all(leaf.is_exact for leaf in saved.leaves)


def _described(worker: Worker) -> Described:
    """What the entry declares. Raises: WorkerFault."""
    told = worker.ask("describe")
    try:
        return Described.model_validate(told)
    except ValidationError as error:
        raise WorkerFault("bad_declaration", what_is_wrong(error)) from error


def _state(found: Inspection, which: str, op: str, **arguments: Any) -> Path:
    into = found.keep / f"state-{which}"
    into.unlink(missing_ok=True)
    found.worker.ask(op, path=str(found.worker.saved(into.name)), **arguments)
    return found.worker.take(into.name, into)


def _add_second(states: dict[str, Path], found: Inspection, cases: Sequence[Case], rng: random.Random) -> bool:
    """Another state dict to which the original answers with numbers; the same where a few have no such answer."""
    is_answered = False
    for attempt in range(STATES):
        found.worker.ask("load_state", path=found.worker.reveal(states["a"]))
        states["b"] = _state(found, "b", "second_state", anew=attempt < STATES - 1, turned=attempt == 0)
        found.worker.ask("load_state", path=found.worker.reveal(states["b"]))
        if is_answered := all(found.possible(case, rng.randrange(1 << 31)) for case in cases):
            break
    found.worker.ask("load_state", path=found.worker.reveal(states["a"]))
    if not is_answered:
        shutil.copyfile(states["a"], states["b"])
    return is_answered


def _strengthen(found: Inspection, states: dict[str, Path], cases: Sequence[Case], rng: random.Random) -> Sequence[str]:
    """Weights of which no result depends; what has next to no effect gets more of it in the second state dict, where
    the original answers that with numbers.
    """
    found.worker.ask("load_state", path=found.worker.reveal(states["b"]))
    if found.possible_seed(cases[0], rng) is None:
        return []
    into = found.keep / "state-strong"
    try:
        told = found.worker.ask_for(Strengthened, "strengthen", path=str(found.worker.saved(into.name)))
    except WorkerFault as fault:  # it has no gradients, or no room for them
        if not fault.survived:
            found.begin_again()
        return []
    found.worker.take(into.name, into)
    found.worker.ask("load_state", path=found.worker.reveal(into))
    if all(found.possible(case, rng.randrange(1 << 31)) for case in cases):
        into.replace(states["b"])
    return told.without_effect


def _same_twice(found: Inspection, case: Case, rng: random.Random) -> None:
    """The same input twice must give the same, else nothing can be compared with anything."""
    seed = rng.randrange(1 << 31)
    of = f"seed {seed} of {case.name}"
    (first, _), (second, _) = found.run_once(case, seed), found.run_once(case, seed)
    if first.forms != second.forms:
        raise WorkerFault("not_deterministic", f"two calls with the same input, {of}, return tensors of other shapes")
    for index, (a, b) in enumerate(zip(first.leaves, second.leaves, strict=True)):
        if not b.same_bytes(a) and (why := accuracy.differ(b, a)):
            said = f"output {index} differs between two calls with the same input, {of}: {why}"
            raise WorkerFault("not_deterministic", said)


def _unseen_shapes(found: Inspection, cases: list[Case], rng: random.Random) -> tuple[Case, ...]:
    """Shapes near the declared ones that the pristine model accepts, most of them near the cheapest. None where the
    entry declares no numbers. First one in which all numbers differ and none is 1, if there is such a one, and then
    others without a 1: torch.compile makes one graph for all of these, where it would make one for each.
    """
    unseen: list[Case] = []
    for declared in cases:
        wanted = len(unseen) + (UNSEEN if declared is cases[0] else 1)
        # no larger than what has room in the truth's precision, but for the cheapest, which is far from that
        beyond = declared is cases[0]
        for tried in range(4 * UNSEEN if beyond else UNSEEN):
            in_one_graph = beyond and tried < 2 * UNSEEN
            shape = _near(declared.shape, beyond, rng, every=in_one_graph and not unseen, least=1 + in_one_graph)
            if len(unseen) == wanted or shape is None:
                break
            case = Case(declared.phase, shape)
            if case not in (*cases, *unseen) and found.possible(case, rng.randrange(1 << 31)):
                unseen.append(case)
    return tuple(unseen)


def _near(
    declared: Mapping[str, Any], beyond: bool, rng: random.Random, *, every: bool, least: int
) -> dict[str, Any] | None:
    """Some or `every` one of its numbers changed by half at most, upwards as well if `beyond`; none below `least`."""
    shape = dict(declared)
    numbers = [key for key, value in shape.items() if type(value) is int and value > 0]
    changed = rng.sample(numbers, len(numbers) if every or not numbers else rng.randint(1, len(numbers)))
    for key in numbers:
        value = shape[key]
        if key in changed or value < least:
            most = value + (max(1, value // 2) if beyond else 0)
            near = range(max(least, value // 2), most + 1)
            shape[key] = rng.choice([each for each in near if each != value or not every])
    return shape if numbers else None


def _transforms(
    found: Inspection, case: Case, states: Mapping[str, Path], rules: Rules, rng: random.Random
) -> tuple[str, ...]:
    """What the pristine model survives: it need not be copyable, but then a candidate need not either."""
    survived = []
    is_large = states["a"].stat().st_size > PICKLED_BYTES
    for name in TRANSFORMS:
        if name == "pickle" and is_large:
            continue
        try:
            found.worker.ask("transform", name=name, seed=rng.randrange(1 << 31))
        except WorkerFault as fault:
            if fault.kind != "transform_raised":
                raise
            continue
        seed = rng.randrange(1 << 31)
        if found.possible(case, seed) and (name != ENLARGED or _stands_enlarged(found, case, seed, states, rules)):
            survived.append(name)
    found.worker.ask("load_state", path=found.worker.reveal(states["a"]))
    return tuple(survived)


def _stands_enlarged(found: Inspection, case: Case, seed: int, states: Mapping[str, Path], rules: Rules) -> bool:
    """Whether the original tells numbers apart from rounding there, that of its inputs and, three times, that of its
    weights; in 16 bits it would not.
    """
    if rules.compare or _is_of_16_bits(states):
        return False
    here = answers(found, case, rules, [seed])[0].head(imposters.HEAD)
    if not variants.is_steady(found, case, rules, seed, here, "but for rounding"):
        return False
    for number in range(variants.SHAKES):
        found.worker.ask("transform", name="shaken", seed=number)
        if not variants.is_steady(found, case, rules, seed, here, ""):
            return False
    return True


def _under_autocast(told: Described) -> bool:
    return told.recipe is not None and bool(told.recipe.autocast)


def _is_of_16_bits(states: Mapping[str, Path]) -> bool:
    return any(leaf.dtype in ("bfloat16", "float16") for leaf in tensors.read(states["a"]).leaves)


def _precision(
    found: Inspection,
    cases: Sequence[Case],
    states: Mapping[str, Path],
    rules: Rules,
    known: Mapping[int, Saved],
    rng: random.Random,
) -> str:
    """The widest precision in which the pristine model answers each case, and is the same function: `known` are its own
    answers to the cheapest, by seed; none where the entry compares by itself.
    """
    for name in ("float64", "float32"):
        try:
            found.worker.ask("precision", name=name)
            found.worker.ask("load_state", path=found.worker.reveal(states["a"]))
            cheap, *others = cases
            if not found.possible(cheap, rng.randrange(1 << 31)) or not _holds(found, cheap, rules, known):
                continue
            for case in others:
                found.call(found.draw(case, rng.randrange(1 << 31)), case)
            return name
        except WorkerFault as fault:
            if fault.kind in ("forged_reply", "interfered"):
                raise
            if not fault.survived:  # out of memory, for instance
                found.begin_again()
    return ""


def _holds(found: Inspection, case: Case, rules: Rules, known: Mapping[int, Saved]) -> bool:
    """Whether the truth in the precision now in force tells right from wrong."""
    if not known:
        return True
    rights, truths = [*known.values()], answers(found, case, rules, [*known])
    if not imposters.is_same_function(rights, truths):
        return False
    return not imposters.passing(rights, truths[0], rules)
