"""Which other inputs an original answers, of those that the guest's `values.py` makes, and which show anything."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tools.judging import accuracy, imposters
from tools.judging.accuracy import largest
from tools.judging.asking import Inspection, answers, compared
from tools.judging.correctness import Rules
from tools.judging.script import (
    NOT_A_NUMBER,
    OTHER_CONSTANTS,
    OTHER_FORMS,
    OTHER_TYPE,
    ROUGHLY,
    ROWS_APART,
    STRIDED,
    Case,
)
from tools.judging.tensors import Saved
from tools.judging.worker import WorkerFault

# other values, sizes and places, by kind: of each kind the first that tells right from wrong
CHOICES = (OTHER_CONSTANTS, "apart", "padded", "full and empty", "any row", "other numbers")
VARIANTS = (
    ("sorted, negated", "negated"),
    ("rows alike, huge", "huge", "rows alike, large", "large", "scaled"),
    ("constant", "nearly constant"),
    (", ".join(CHOICES), ", ".join(CHOICES[:3] + CHOICES[4:]), "padded, any row", *CHOICES),
    ("padded, gaps",),
    ("masks of another type",),
    ("with holes",),
    ("minus one", "minus a hundred"),
    ("nearly the same numbers",),
    ("one more", "twice as many"),
    ("half as long, tiny, a row of zeros", "half as long, tiny", "tiny, a row of zeros", "tiny"),
    ("one row, four times as long, strided", "one row, twice as long, strided", "one row, strided", "one row", STRIDED),
    ("of length one",),
    (ROWS_APART,),
    (f"wider images, {OTHER_TYPE}", OTHER_TYPE, "wider images"),  # what has a width of its own takes no other
    ("three rows, not a number", NOT_A_NUMBER),
)
# which leave the size of results as it is
USUAL = {*OTHER_FORMS, *CHOICES, "gaps", "with holes", "minus one", "minus a hundred"}
# which may be too much for the original, and are asked where it raises
REFUSABLE = ("half as long", "twice as long", "four times as long", "wider", OTHER_TYPE, "no such row", NOT_A_NUMBER)
LONGER, LONGER_S = ("twice as long", "four times as long"), 0.1  # seconds of a usual call, above which these are not
MUCH_LARGER = ("huge", "large")
SHAKEN = {"constant": "constant but for rounding"}
SHAKES = 3  # seeds for which that is asked: where the one value is small, a norm of it may be steady
MUCH_SMALLER = 1e-3  # than usual: what an output is at most under values that show nothing


def chosen(found: Inspection, case: Case, rules: Rules, rng: random.Random) -> dict[str, str]:
    """By kind of what makes a difference to the arguments: what is asked of it, empty where nothing is."""
    usual = None if rules.compare else answers(found, case, rules, [rng.randrange(1 << 31)])[0].head(imposters.HEAD)
    found_of = {}
    for kind in VARIANTS:
        names = [name for name in kind if not _is_too_long(case, name) and found.changes(case, 0, name)]
        if names:
            name = next((name for name in names if _tells(found, case, rules, rng, name, usual)), "")
            found_of[names[-1]] = _as_steady(found, case, rules, rng, name)
    return found_of


def _as_steady(found: Inspection, case: Case, rules: Rules, rng: random.Random, name: str) -> str:
    """Where values are much larger than usual, as scores of an attention are then, rounding may decide near ties: where
    there is no truth, no bound on it is known, and answers are compared roughly.
    """
    if rules.compare or not any(each in name for each in MUCH_LARGER):
        return name
    answered = [found.answered(case, rng, name) for _ in range(SHAKES)]
    heads = [(seed, compared(found, saved, case, rules).head(imposters.HEAD)) for seed, saved in filter(None, answered)]
    shaken = f"{name}, but for rounding"
    return name if all(is_steady(found, case, rules, *each, shaken) for each in heads) else f"{name}, {ROUGHLY}"


def _is_too_long(case: Case, variant: str) -> bool:
    return case.call_s > LONGER_S and any(name in variant for name in LONGER)


def refused(found: Inspection, case: Case, answered: Sequence[str], device: str, rng: random.Random) -> tuple[str, ...]:
    """What the original raises at."""
    names = [name for name in REFUSABLE if not any(name in variant for variant in answered)]
    return tuple(
        name
        for name in names
        if not _is_too_long(case, name)
        # on a device, what names no row ends the process, or goes unnoticed
        and not (name == "no such row" and device != "cpu")
        and found.refuses(case, rng.randrange(1 << 31), name)
    )


def _tells(found: Inspection, case: Case, rules: Rules, rng: random.Random, variant: str, usual: Saved | None) -> bool:
    """Whether the original answers such values, and neither with next to nothing nor with what is left of rounding, as
    a norm does of values that are all the same: there no two orders of summation agree.
    """

    def answered() -> tuple[int, Saved] | None:
        seed, saved = found.answered(case, rng, variant) or (0, None)
        if saved is None or (rules.compare and not found.is_like_itself(saved, case)):
            return None
        return seed, compared(found, saved, case, rules).head(imposters.HEAD)

    try:
        first = answered()
    except WorkerFault as fault:
        if fault.survived or fault.kind in ("forged_reply", "interfered"):
            raise
        found.begin_again()  # it took too much memory, or a library fails of it
        return False
    if first is None or usual is None or NOT_A_NUMBER in variant:
        return first is not None
    pairs = zip(first[1].leaves, usual.leaves, strict=False)
    is_larger = all(h.is_exact or u.is_exact or largest(h) >= MUCH_SMALLER * largest(u) for h, u in pairs)
    if not is_larger and not set(variant.split(", ")) <= USUAL:
        return False
    return variant not in SHAKEN or all(
        each is not None and is_steady(found, case, rules, *each, SHAKEN[variant])
        for each in (first, *(answered() for _ in range(SHAKES - 1)))
    )


def is_steady(found: Inspection, case: Case, rules: Rules, seed: int, here: Saved, variant: str) -> bool:
    """Whether the original's answer moves no more than rounding does where values, or its weights, do by as much."""
    if (saved := found.answer(case, seed, variant)) is None:
        return False
    shaken = compared(found, saved, case, rules).head(imposters.HEAD)
    return here.forms == shaken.forms and not any(map(accuracy.fails, shaken.leaves, here.leaves, here.leaves))
