"""Other inputs than an entry draws, which its model takes as well: other values, sizes and places in memory.

Each is made of the tensors that were drawn: the same for the same seed, in every process.
"""

from __future__ import annotations

import torch

HUGE, LARGE, SCALED, TINY = 2.0**12, 2.0**6, 4.0, 2.0**-8
FACTOR = 1.5  # of plain numbers
STRIDED, OTHER_CONSTANTS = "strided", "other constants"  # come about where arguments are staged, and drawn
LEAST_MASKED = -1e4  # what is added to leave out a place, at most


def varied(variant, structure, flat, seed, rows):
    """(structure, tensors) of arguments; `variant` is a name or several. `rows`: {number of a tensor: how many rows
    there are of what it looks up}.
    """
    for name in variant.split(", "):
        generator = torch.Generator().manual_seed(seed)
        if name == "other numbers":
            structure = _other_numbers(structure)
        elif name == "any row":
            flat = [_any(t, rows[n], generator) if n in rows else t for n, t in enumerate(flat)]
        elif name == "no such row":
            flat = [_beyond(t, rows[n]) if n in rows else t for n, t in enumerate(flat)]
        elif name in MASKS:
            flat = [MASKS[name](t, *_meanings(t), generator) if _meanings(t) else t for t in flat]
        elif name in SIZES:
            flat = SIZES[name](flat)
        elif name not in (STRIDED, OTHER_CONSTANTS):
            flat = [VALUES[name](t) for t in flat]
    return structure, flat


def is_varied(structure, flat, other_structure, others):
    """Whether anything is another than before, by which a question is worth its time."""
    if structure != other_structure:
        return True
    return any(
        (a.shape, a.dtype) != (b.shape, b.dtype) or not torch.equal(a, b) for a, b in zip(flat, others, strict=True)
    )


def _other_numbers(node):
    if node["t"] == "value" and type(node["v"]) is float:
        return {**node, "v": node["v"] * FACTOR}
    return {**node, "items": [_other_numbers(each) for each in node["items"]]} if "items" in node else node


def _any(tensor, rows, generator):
    return torch.randint(rows, tensor.shape, generator=generator).to(tensor)


def _beyond(tensor, rows):
    """The last one names a row that is not there."""
    found = tensor.clone()
    found.flatten()[-1:] = rows
    return found


def _meanings(tensor):
    """What a mask has where it counts, and where it does not; nothing where this is none. It is made of ones and
    zeros, or of zeros and one number that leaves out what it is added to.
    """
    if tensor.is_complex() or not tensor.dim() or tensor.shape[-1] < 2:
        return ()
    if bool(((tensor == 0) | (tensor == 1)).all()) and not (tensor.is_floating_point() and not bool(tensor.any())):
        return 1, 0
    least = tensor.min()
    if tensor.is_floating_point() and bool(least <= LEAST_MASKED) and bool(((tensor == 0) | (tensor == least)).all()):
        return 0, least.item()
    return ()


def _padded(tensor, counts, left_out, generator):
    """Of each row a part from its beginning counts."""
    length = tensor.shape[-1]
    lengths = torch.randint(1, length, (*tensor.shape[:-1], 1), generator=generator)
    places = torch.arange(length).expand(tensor.shape) < lengths
    return torch.where(places, counts, left_out).to(tensor)


def _full_and_empty(tensor, counts, left_out, generator):
    """All of the first row counts, and nothing of the last."""
    found = tensor.clone()
    found[:1], found[1:][-1:] = counts, left_out
    return found


def _of_rows(most):
    """The first rows of all tensors that have as many as the first with two dimensions."""

    def shortened(flat):
        count = next((len(t) for t in flat if t.dim() > 1), 0)
        return [t[:most].clone() if t.dim() and len(t) == count > most else t for t in flat]

    return shortened


def _times_as_long(factor):
    """The same of the second dimension, or all of it again and again."""

    def changed(flat):
        length = next((t.shape[1] for t in flat if t.dim() > 1), 0)
        places = torch.arange(int(length * factor)) % max(1, length)
        return [t[:, places.to(t.device)] if t.dim() > 1 and t.shape[1] == length > 1 else t for t in flat]

    return changed


def _wider(flat):
    """One more of the last dimension, of all tensors of floating-point numbers that have as many as the first."""
    width = next((t.shape[-1] for t in flat if t.dim() > 1 and t.is_floating_point()), 0)
    return [
        torch.cat([t, t[..., -1:]], -1) if t.dim() > 1 and t.is_floating_point() and t.shape[-1] == width > 0 else t
        for t in flat
    ]


def _of_another_type(tensor):
    if not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.float64 if tensor.dtype == torch.float32 else torch.float32)


def _sorted(tensor):
    return tensor.sort().values if tensor.dim() and not tensor.is_complex() else tensor


def _rows_alike(tensor):
    return tensor[:1].expand_as(tensor).clone() if tensor.dim() > 1 else tensor


def _negated(tensor):
    return -tensor if tensor.is_floating_point() else tensor.flatten().flip(0).reshape(tensor.shape)


def _times(factor):
    return lambda tensor: tensor * factor if tensor.is_floating_point() else tensor


def _with_nan(tensor):
    """In all of the first row, or of the first of the only one: what comes after may well depend on it. The second has
    infinities.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    found = tensor.clone()
    at = next((d for d, size in enumerate(tensor.shape) if size > 1), 0)
    (found.select(at, 0) if tensor.dim() else found).fill_(float("nan"))
    if tensor.dim() and found.shape[at] > 2:
        found.select(at, 1).copy_(found.select(at, 1).sign() * float("inf"))
    return found


def _alike(apart):
    """All the same, floating-point numbers but for this share of themselves."""

    def made(tensor):
        if not tensor.numel():
            return tensor
        same = tensor.flatten()[:1].expand(tensor.numel()).reshape(tensor.shape).clone()
        share = apart(tensor) if callable(apart) else apart
        if not share or not tensor.is_floating_point():
            return same
        return (same.double() * (1 + share * torch.randn(tensor.shape, device=tensor.device))).to(tensor.dtype)

    return made


def _rounding(tensor):
    """The share of themselves by which numbers of this dtype come out otherwise in another order of summation."""
    if not tensor.is_floating_point():
        return 0
    return torch.finfo(tensor.dtype).eps * (1.6 if tensor.element_size() > 2 else 0.25)


def in_another_place(tensor):
    """The same numbers in every second place of a larger memory, and not from its beginning."""
    if not tensor.dim():
        return tensor
    wide = tensor.new_empty((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1))
    return wide[..., 1::2].copy_(tensor)


# what holds only for the usual distribution fails on these
VALUES = {
    "sorted": _sorted,
    "rows alike": _rows_alike,
    "another type": _of_another_type,
    "negated": _negated,
    "huge": _times(HUGE),
    "large": _times(LARGE),
    "scaled": _times(SCALED),
    "tiny": _times(TINY),
    "not a number": _with_nan,
    "constant": _alike(0),
    "constant but for rounding": _alike(_rounding),
    "nearly constant": _alike(1 / 64),
}
SIZES = {
    "one row": _of_rows(1),
    "three rows": _of_rows(3),
    "half as long": _times_as_long(0.5),
    "twice as long": _times_as_long(2),
    "four times as long": _times_as_long(4),
    "wider": _wider,
}
MASKS = {"padded": _padded, "full and empty": _full_and_empty}
