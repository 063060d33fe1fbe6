"""Other inputs than an entry draws, which its model takes as well: other values, sizes and places in memory.

Each is made of the tensors that were drawn: the same for the same seed, in every process.
"""

from __future__ import annotations

import torch

HUGE, LARGE, SCALED, TINY = 2.0**12, 2.0**6, 4.0, 2.0**-8
FACTOR = 1.5  # of plain numbers
STRIDED = "strided"  # comes about where arguments are staged


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
        elif name == "padded":
            flat = [_padded(t, generator) for t in flat]
        elif name in SIZES:
            flat = SIZES[name](flat)
        elif name != STRIDED:
            flat = [VALUES[name](t) for t in flat]
    return structure, flat


def is_varied(structure, flat, other_structure, others):
    """Whether anything is another than before, by which a question is worth its time."""
    if structure != other_structure:
        return True
    return any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(flat, others, strict=True))


def _other_numbers(node):
    if node["t"] == "value" and type(node["v"]) is float:
        return {**node, "v": node["v"] * FACTOR}
    return {**node, "items": [_other_numbers(each) for each in node["items"]]} if "items" in node else node


def _any(tensor, rows, generator):
    return torch.randint(rows, tensor.shape, generator=generator).to(tensor)


def _padded(tensor, generator):
    """What is made of ones and zeros says what counts: of each row a part from its beginning."""
    is_mask = tensor.dim() and not tensor.is_floating_point() and not tensor.is_complex() and tensor.shape[-1] > 1
    if not is_mask or not bool(((tensor == 0) | (tensor == 1)).all()):
        return tensor
    length = tensor.shape[-1]
    lengths = torch.randint(1, length, (*tensor.shape[:-1], 1), generator=generator)
    return (torch.arange(length).expand(tensor.shape) < lengths).to(tensor)


def _of_rows(most):
    """The first rows of all tensors that have as many as the first with two dimensions."""

    def shortened(flat):
        count = next((len(t) for t in flat if t.dim() > 1), 0)
        return [t[:most].clone() if t.dim() and len(t) == count > most else t for t in flat]

    return shortened


def _half_as_long(flat):
    """The same of the second dimension."""
    length = next((t.shape[1] for t in flat if t.dim() > 1), 0)
    return [t[:, : length // 2].clone() if t.dim() > 1 and t.shape[1] == length > 1 else t for t in flat]


def _negated(tensor):
    return -tensor if tensor.is_floating_point() else tensor.flatten().flip(0).reshape(tensor.shape)


def _times(factor):
    return lambda tensor: tensor * factor if tensor.is_floating_point() else tensor


def _with_nan(tensor):
    """In all of the first row, or of the first of the only one: what comes after may well depend on it."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    found = tensor.clone()
    at = next((d for d, size in enumerate(tensor.shape) if size > 1), 0)
    (found.select(at, 0) if tensor.dim() else found).fill_(float("nan"))
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
SIZES = {"one row": _of_rows(1), "three rows": _of_rows(3), "half as long": _half_as_long}
