"""How far are these outputs from the truth? The error-ratio rule on raw bytes, with numpy, on the host.

The truth is the pristine model in float64 where that runs. A candidate may err twice as much as the pristine model in
its own precision does, or up to a floor of its dtype: a kernel that rounds differently passes, a silent loss of
precision does not. Does not average: the worst row and the worst element count, and rows that are lost by number.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.judging.tensors import Leaf, Saved

# error per row of the last dimension (relative L2), largest error over largest value
FLOORS = {
    "float64": (1e-12, 1e-11),
    "float32": (4e-6, 4e-5),
    "bfloat16": (4e-3, 3e-2),
    "float16": (5e-4, 4e-3),
    "complex64": (4e-6, 4e-5),
    "complex128": (1e-12, 1e-11),
}
FLOAT8_FLOOR = (6e-2, 2.5e-1)
RATIO = 2.0
# A row this much smaller than the typical row is measured against the typical one: near zero, relative means nothing.
# Of few numbers, rows are small by chance: what lies below 1 / sqrt(numbers) of the typical row is, too.
SMALL_ROW = 1e-3
# A row that is off by more says nothing of rounding: the original took another way there than the truth, as through a
# router. It counts by itself, so that it does not widen what all other rows are allowed.
LOST_ROW = 0.5
# more than rounding is what loses more of all rows, or has the median row off by more: rounding to 16 bits leaves deep
# models with a few hundredths
LOST_SHARE, TYPICAL_ERROR = 1 / 16, 1 / 8
# Rows, columns and channels are compared with the original's one by one, too, each by its own size. Which of the two is
# nearer the truth in one of them is chance, so what counts is how many are further off than `CLEARLY` or `FAR` times
# the original's, beside how many of the original's are further off than the candidate's by a `RATIO`-th as much. This
# share of them, and so many, may be by chance; of `FEW_NUMBERS` and more, none is far off by chance.
CLEARLY, FAR = 4.0, 64.0
BY_CHANCE, LEAST_BY_CHANCE = {CLEARLY: 1 / 50, FAR: 1 / 1000}, {CLEARLY: 3, FAR: 1}
FEW_NUMBERS = 8
WIDEST = 4096  # numbers in a row of which columns are looked at: in a vocabulary there is none of another size
CHUNK = 1 << 20
MUCH_KEPT, LEAST_KEPT = 8, 8 << 10  # times as much memory, bytes, that lives as long as a result does
MAX_DEPTH = 64  # of a result; the guest goes half as deep


@dataclass(frozen=True)
class LeafError:
    """Errors of one tensor against the truth; `mismatch` says what cannot be expressed as a number."""

    row: float = 0.0  # worst relative L2 error of a row that is not lost
    scaled: float = 0.0  # largest absolute error in such a row over the largest absolute value
    mismatch: str = ""
    lost: int = 0  # rows that are off by more than `LOST_ROW`
    # relative errors of all rows, columns and channels, without rows that are lost, and how many numbers one has
    each: tuple[tuple[NDArray[np.float64], int], ...] = field(default=(), compare=False)

    def worse(self, other: LeafError) -> LeafError:
        worst = max(self.row, other.row), max(self.scaled, other.scaled)
        return LeafError(*worst, self.mismatch or other.mismatch, self.lost + other.lost)


def same_form(candidate: Saved, baseline: Saved, truth: Saved | None = None) -> str:
    """Empty when nesting, dtypes, shapes, classes and devices agree; else what differs. Floating-point numbers that are
    no tensors may err as a row may, where a truth is known.
    """
    mine, theirs, wide = list[float](), list[float](), list[float]()
    nesting = _nesting(baseline.structure, theirs)
    if _nesting(candidate.structure, mine) != nesting:
        return "the result is nested differently"
    if truth is None or _nesting(truth.structure, wide) != nesting:
        wide = theirs
    for number, known, true in zip(mine, theirs, wide, strict=True):
        if not _near(number, known, true):
            return f"a number in the result is {number!r}, the original has {known!r}"
    for index, (c, b) in enumerate(zip(candidate.leaves, baseline.leaves, strict=False)):
        if c.part_of:
            return f"output {index} is given in part"
        for name in ("dtype", "whole", "kind", "device"):
            if getattr(c, name) != getattr(b, name):
                told = "shape" if name == "whole" else name
                return f"output {index} has {told} {getattr(c, name)}, the original has {getattr(b, name)}"
        if b.grad and not c.grad:
            return f"no gradient flows back from output {index}"
        if c.grad and not b.grad:
            return f"a gradient is kept for output {index}, the original needs none"
        if c.borrowed and not b.borrowed:
            return f"output {index} shares its memory with {c.borrowed}, the original has its own"
        if c.is_of_inference and not b.is_of_inference:
            return f"output {index} is made in inference mode, the original's is not"
        if c.is_spread and not b.is_spread:
            return f"numbers of output {index} have one place in memory, the original's have their own"
        if b.is_contiguous and not c.is_contiguous:
            return f"output {index} is not contiguous, the original's is"
        if c.keeps > MUCH_KEPT * max(b.keeps, b.nbytes) and c.keeps > LEAST_KEPT:
            told = f"{c.keeps} bytes alive, the original's {b.keeps}"
            return f"output {index} is a view that keeps {told}"
    if len(candidate.leaves) != len(baseline.leaves):
        return f"{len(candidate.leaves)} tensors instead of {len(baseline.leaves)}"
    return ""


def _nesting(node: Any, floats: list[float], depth: int = 0) -> Any:
    """The structure of a result without the values of its floating-point numbers, which are put into `floats`."""
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        return node
    if node.get("t") == "value" and isinstance(node.get("v"), float):
        floats.append(node["v"])
        return "float"
    items = node.get("items")
    return {**node, "items": [_nesting(each, floats, depth + 1) for each in items]} if isinstance(items, list) else node


def _near(number: float, known: float, true: float) -> bool:
    if number == known or (math.isnan(number) and math.isnan(known)):
        return True
    if not math.isfinite(number) or not math.isfinite(known):
        return False
    if not abs(known - true) <= TYPICAL_ERROR * abs(known):
        true = known
    return abs(number - true) <= max(FLOORS["float32"][0] * abs(true), RATIO * abs(known - true))


def leaf_error(leaf: Leaf, truth: Leaf, baseline: Leaf) -> LeafError:
    """Error of `leaf` against `truth`. Where the baseline is not finite, both must show the same.

    Integers and booleans must equal the baseline's exactly.
    """
    if baseline.is_exact:
        different, count = 0, baseline.elements
        for start in range(0, count, CHUNK):
            span = (start, min(start + CHUNK, count))
            different += int(np.count_nonzero(leaf.exact(*span) != baseline.exact(*span)))
        return LeafError(mismatch=f"{different} of {count} integers differ" if different else "")
    # 16-bit outputs need no float64 to be told apart, and half the memory traffic is half the time
    wide = np.float64 if leaf.dtype in ("float32", "float64", "complex64", "complex128") else np.float32
    parts = _over_chunks(leaf, truth, baseline, wide)
    if wide is np.float32 and not all(np.isfinite(part.squares).all() for part in parts):
        wide = np.float64  # squares of huge values overflow
        parts = _over_chunks(leaf, truth, baseline, wide)
    if any(part.odd for part in parts):
        return LeafError(mismatch="NaN or infinity where the original has none, or the reverse")
    largest_value = max((part.largest_value for part in parts), default=0.0)
    floor = FLOORS.get(leaf.dtype, FLOAT8_FLOOR)[0]
    if _largest_error(parts) == 0.0:
        return LeafError(each=tuple(_each(parts, truth, floor)))
    if largest_value == 0.0:
        return LeafError(mismatch="not zero where the original is zero everywhere")
    errors = _relative(parts, truth.row_length)
    lost = errors > LOST_ROW
    if lost.any():
        parts = _over_chunks(leaf, truth, baseline, wide, lost)
    row, each = float(errors[~lost].max(initial=0.0)), tuple(_each(parts, truth, floor))
    return LeafError(row, _largest_error(parts) / largest_value, lost=int(np.count_nonzero(lost)), each=each)


def allowing(error: LeafError, rounded: Leaf, truth: Leaf, baseline: Leaf) -> LeafError:
    """The errors of the original, or of its answer as otherwise `rounded`, which is another function's where it is off
    by more than rounding.
    """
    if truth.is_exact or not is_rounding(row_errors(rounded, truth)):
        return error
    other = leaf_error(rounded, truth, baseline)
    if other.mismatch:
        return error
    each = tuple((np.maximum(a, b), numbers) for (a, numbers), (b, _) in zip(error.each, other.each, strict=False))
    return LeafError(max(error.row, other.row), max(error.scaled, other.scaled), error.mismatch, error.lost, each)


def row_errors(leaf: Leaf, truth: Leaf) -> NDArray[np.float64]:
    """Relative L2 errors of all rows of the original's answer; infinite where the truth is zero everywhere."""
    parts = _over_chunks(leaf, truth, leaf, np.float64)
    if _largest_error(parts) == 0.0:
        return np.zeros(sum(part.squares.shape[1] for part in parts))
    return _relative(parts, truth.row_length) if any(part.largest_value for part in parts) else np.full(1, np.inf)


def has_numbers(leaf: Leaf) -> bool:
    """No NaN, and not infinities alone. Exact values are numbers."""
    if leaf.is_exact:
        return True
    finite = not leaf.elements
    for start in range(0, leaf.elements, CHUNK):
        values = leaf.as_float(start, min(start + CHUNK, leaf.elements))
        if np.isnan(values).any():
            return False
        finite = finite or bool(np.isfinite(values).any())
    return finite


def largest(leaf: Leaf) -> float:
    """The largest absolute value that is finite; 0 where none is."""
    found = 0.0
    for start in range(0, leaf.elements, CHUNK):
        values = np.abs(leaf.as_float(start, min(start + CHUNK, leaf.elements)))
        found = max(found, float(values[np.isfinite(values)].max(initial=0.0)))
    return found


def is_rounding(errors: NDArray[np.float64]) -> bool:
    """Whether so much can come of rounding: what is farther from the truth was another function's answer."""
    if not errors.size:
        return True
    return bool(np.median(errors) <= TYPICAL_ERROR and (errors > LOST_ROW).mean() <= LOST_SHARE)


@dataclass(frozen=True)
class _Part:
    """Some rows: sums of squares of error and truth by row and by column, and the largest of both."""

    squares: NDArray[Any]
    columns: NDArray[Any]
    largest_error: float
    largest_value: float
    odd: bool = False


def _largest_error(parts: list[_Part]) -> float:
    return max((part.largest_error for part in parts), default=0.0)


def _relative(parts: list[_Part], length: int) -> NDArray[np.float64]:
    """Errors of rows of that many numbers over their size, or over what of the typical row a row is not below."""
    error, value = np.sqrt(np.concatenate([part.squares for part in parts], axis=1, dtype=np.float64))
    least = max(SMALL_ROW, min(1.0, 1 / math.sqrt(max(1, length))))
    return np.asarray(error / np.maximum(value, least * float(np.sqrt((value**2).mean()))))


def _each(parts: list[_Part], truth: Leaf, floor: float) -> Iterator[tuple[NDArray[np.float64], int]]:
    """Relative errors and how many numbers one has: of rows, of columns, and by the second of more dimensions."""
    if not parts:
        return
    rows = np.concatenate([part.squares for part in parts], axis=1, dtype=np.float64)
    length = max(1, truth.row_length)
    yield _by_own_size(rows, floor), length
    yield _by_own_size(np.sum([part.columns for part in parts], axis=0, dtype=np.float64), floor), rows.shape[1]
    if len(truth.shape) > 2:
        channels = rows.reshape(2, truth.shape[0], truth.shape[1], -1).sum(axis=(1, 3))
        yield _by_own_size(channels, floor), truth.elements // truth.shape[1]


def _by_own_size(squares: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Errors over sizes; what is far below the typical size is next to nothing, and counts as that."""
    error, value = np.sqrt(squares)
    least = floor * float(np.sqrt((value**2).mean())) if value.size else 0.0
    return np.asarray(error / np.maximum(value, least or 1.0))


def excess(mine: LeafError, theirs: LeafError, dtype: str) -> NDArray[np.int64]:
    """For rows, columns and channels: how many there are, how many are `CLEARLY` and `FAR` further off than the
    original's, how many of the original's so than these by a `RATIO`-th, and how many may be by chance alone.
    """
    floor = FLOORS.get(dtype, FLOAT8_FLOOR)[0]
    found = np.zeros((3, 3, 2), dtype=np.int64)
    for kind, ((c, numbers), (b, _)) in enumerate(zip(mine.each, theirs.each, strict=False)):
        c, b = np.maximum(c, floor), np.maximum(b, floor)
        for at, times in enumerate((CLEARLY, FAR)):
            found[kind, 0, at] = np.count_nonzero(c > times * b)
            found[kind, 1, at] = np.count_nonzero(b > times / RATIO**2 * c)
            found[kind, 2, at] = c.size if times == CLEARLY or numbers < FEW_NUMBERS else 0
    return found


def judge_excess(found: NDArray[np.int64]) -> str:
    """The rule on the counts of all calls. Returns why they fail it; empty when they pass."""
    for name, kind in zip(("row", "column", "channel"), found, strict=True):
        for at, times in enumerate((CLEARLY, FAR)):
            off, turned, of = (int(counts[at]) for counts in kind)
            by_chance = max(LEAST_BY_CHANCE[times], of * BY_CHANCE[times]) if of else 0
            if off > RATIO * turned + by_chance:
                seen = f"the original's are {turned} times, by a {RATIO:.0f}-th of that"
                return f"{off} {name}s are off by more than {times:.0f} times as much as the original's; {seen}"
    return ""


def _over_chunks(
    leaf: Leaf, truth: Leaf, baseline: Leaf, wide: type, lost: NDArray[np.bool_] | None = None
) -> list[_Part]:
    """In parts that fit the cache of a core, on all cores: a large output has 10^8 elements."""
    length = max(1, truth.row_length)
    step = max(1, CHUNK // length) * length
    spans = [(start, min(start + step, truth.elements)) for start in range(0, truth.elements, step)]
    if len(spans) < 2:
        return [_part(leaf, truth, baseline, wide, span, length, lost) for span in spans]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda span: _part(leaf, truth, baseline, wide, span, length, lost), spans))


def _part(
    leaf: Leaf,
    truth: Leaf,
    baseline: Leaf,
    wide: type,
    span: tuple[int, int],
    length: int,
    lost: NDArray[np.bool_] | None,
) -> _Part:
    """Rows that are `lost` have no error here."""
    x, t, b = (part.as_float(*span, wide) for part in (leaf, truth, baseline))
    odd = ~np.isfinite(b)
    if (odd != ~np.isfinite(x)).any() or not np.array_equal(x[odd], b[odd], equal_nan=True):
        return _Part(np.zeros((2, 0)), np.zeros((2, 0)), 0.0, 0.0, odd=True)
    if odd.any() or not np.isfinite(t).all():
        # where the original has a number and the truth has none, the original's is what there is to compare with
        t = np.where(odd, 0.0, np.where(np.isfinite(t), t, b)).astype(wide)
        x = np.where(odd, t, x)
    error = x - t
    if lost is not None:
        error.reshape(-1, length)[lost[span[0] // length : span[1] // length]] = 0.0
    with np.errstate(over="ignore"):
        squares, columns = (
            np.stack([np.einsum(f"ij,ij->{by}", v.reshape(-1, length), v.reshape(-1, length)) for v in (error, t)])
            if by == "i" or length <= WIDEST
            else np.zeros((2, 0))
            for by in "ij"
        )
    return _Part(squares, columns, float(np.abs(error).max(initial=0.0)), float(np.abs(t).max(initial=0.0)))


def judge_leaf(error: LeafError, baseline_error: LeafError, dtype: str) -> str:
    """The rule, on the worst errors seen over all calls of one kind. Returns why they fail it; empty when they pass."""
    floor = FLOORS.get(dtype, FLOAT8_FLOOR)
    row, scaled = max(floor[0], RATIO * baseline_error.row), max(floor[1], RATIO * baseline_error.scaled)
    lost = int(RATIO * baseline_error.lost)
    if error.mismatch:
        return error.mismatch
    if error.lost > lost:
        return f"a row is off by more than {LOST_ROW:.0%}: {error.lost} of them, allowed {lost}"
    if not error.row <= row:
        return f"a row is off by {error.row:.2g}, allowed {row:.2g}"
    if not error.scaled <= scaled:
        return f"an element is off by {error.scaled:.2g} of the largest, allowed {scaled:.2g}"
    return ""


def fails(leaf: Leaf, truth: Leaf, baseline: Leaf) -> str:
    """The rule on one tensor by itself; empty when it passes."""
    error, baseline_error = (leaf_error(each, truth, baseline) for each in (leaf, baseline))
    worst = judge_leaf(error, baseline_error, leaf.dtype)
    return worst or judge_excess(excess(error, baseline_error, leaf.dtype))


def differ(one: Leaf, other: Leaf) -> str:
    """Why two answers to the same input differ by more than both of them may err; empty where they do not."""
    error, none = leaf_error(one, other, other), leaf_error(other, other, other)
    both = judge_leaf(error, LeafError(*FLOORS.get(one.dtype, FLOAT8_FLOOR)), one.dtype)
    return both or judge_excess(excess(error, none, one.dtype))


def within_tolerance(leaf: Leaf, original: Leaf, rtol: float, atol: float) -> str:
    """The owner's own tolerance, when the entry declares one: |x - b| <= atol + rtol * |b|. Empty when it holds."""
    if original.is_exact:
        return leaf_error(leaf, original, original).mismatch
    for start in range(0, original.elements, CHUNK):
        stop = min(start + CHUNK, original.elements)
        x, b = leaf.as_float(start, stop), original.as_float(start, stop)
        close = np.isclose(x, b, rtol=rtol, atol=atol, equal_nan=True)
        if not close.all():
            return f"{int((~close).sum())} elements are outside the declared tolerance (rtol {rtol}, atol {atol})"
    return ""
