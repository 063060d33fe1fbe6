"""Self-test of a problem: would the rule accept answers that must fail?

In a wider precision a model may be another function (noise drawn in another dtype, another way through a router); what
is far from the original could pass against such a truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.judging import accuracy
from tools.judging.correctness import Rules, outside
from tools.judging.tensors import Leaf, Saved

HEAD = 1 << 21  # numbers of one tensor: in a model that answers with its whole vocabulary there are 10^8


def passing(rights: Sequence[Saved], truth: Saved, rules: Rules) -> str:
    """Which of zeros, the mean output, another seed's output and a shuffled batch would pass for the first of these
    answers of the original; empty where each fails.
    """
    heads = [right.head(HEAD) for right in rights]
    if heads[0].nbytes < rights[0].nbytes and not _passing(heads, truth.head(HEAD), rules):
        return ""  # that a part tells them all from the right answer is enough
    return _passing(rights, truth, rules)


def _passing(rights: Sequence[Saved], truth: Saved, rules: Rules) -> str:
    right = rights[0]
    for name, raws in _imposters(rights).items():
        if [raw.size for raw in raws] != [leaf.nbytes for leaf in right.leaves]:
            continue  # outputs whose size depends on the data differ by that alone
        leaves = tuple(replace(leaf, data=raw) for leaf, raw in zip(right.leaves, raws, strict=True))
        if passes_for(replace(right, leaves=leaves), right, truth, rules):
            return name
    return ""


def is_same_function(rights: Sequence[Saved], truths: Sequence[Saved]) -> bool:
    """Whether answers of the original in its own precision lie as near those in a wider one as rounding leaves them."""
    rows: dict[int, list[NDArray[np.float64]]] = {}
    for right, truth in ((r.head(HEAD), t.head(HEAD)) for r, t in zip(rights, truths, strict=True)):
        if right.shapes != truth.shapes:
            return False
        for index, (r, t) in enumerate(zip(right.leaves, truth.leaves, strict=True)):
            if r.is_exact != t.is_exact:
                return False
            if not r.is_exact:
                rows.setdefault(index, []).append(accuracy.row_errors(r, t))
    return all(accuracy.is_rounding(np.concatenate(each)) for each in rows.values())


def _imposters(rights: Sequence[Saved]) -> dict[str, list[Any]]:
    right, other = rights[0], rights[1]
    found: dict[str, list[Any]] = {
        "zeros": [np.zeros_like(leaf.raw) for leaf in right.leaves],
        "the output for another seed": [leaf.raw for leaf in other.leaves],
    }
    if all(len(r.leaves) == len(right.leaves) for r in rights):
        found["the mean output"] = [_mean_bytes([r.leaves[i] for r in rights]) for i in range(len(right.leaves))]
    shuffled = [_rolled(leaf) for leaf in right.leaves]
    if any(raw is not None for raw in shuffled):
        kept = [leaf.raw if raw is None else raw for raw, leaf in zip(shuffled, right.leaves, strict=True)]
        found["a shuffled batch"] = kept
    return found


def _mean_bytes(leaves: list[Leaf]) -> Any:
    """The mean over seeds in the leaf's own dtype, for the dtypes numpy has; other leaves stay as they are."""
    first = leaves[0]
    if first.dtype in ("float16", "float32", "float64") and len({leaf.shape for leaf in leaves}) == 1:
        mean = np.mean([leaf.as_float(0, leaf.elements) for leaf in leaves], axis=0)
        return mean.astype(first.dtype).view(np.uint8)
    if first.dtype == "bfloat16" and len({leaf.shape for leaf in leaves}) == 1:
        mean = np.mean([leaf.as_float(0, leaf.elements) for leaf in leaves], axis=0).astype(np.float32)
        return (mean.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return leaves[1].raw


def _rolled(leaf: Leaf) -> Any:
    if len(leaf.shape) < 2 or leaf.shape[0] < 2 or not leaf.nbytes:
        return None
    return np.roll(leaf.raw.reshape(leaf.shape[0], -1), 1, axis=0).reshape(-1)


def passes_for(wrong: Saved, right: Saved, truth: Saved, rules: Rules) -> bool:
    """Whether an answer that must fail would pass."""
    three = zip(wrong.leaves, right.leaves, truth.leaves, strict=True)
    return not any(outside(w, b, rules) if rules.tolerance else accuracy.fails(w, t, b) for w, b, t in three)
