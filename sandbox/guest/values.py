"""Other inputs than an entry draws, which its model takes as well: other values, sizes and places in memory.

Each is made of the tensors that were drawn: the same for the same seed, in every process.
"""

from __future__ import annotations

import torch

from .lookups import is_integer

HUGE, LARGE, SCALED, TINY = 2.0**12, 2.0**6, 4.0, 2.0**-8
FACTOR, NEARLY = 1.5, 1.03  # of plain numbers
# come about where arguments are staged, and drawn
STRIDED, ROWS_APART, OTHER_CONSTANTS = "strided", "rows apart", "other constants"
LEFT_OUT = -100  # what torch's losses leave out
LEAST_MASKED = -1e4  # what is added to leave out a place, at most


def varied(variant, structure, flat, seed, rows):
    """(structure, tensors) of arguments; `variant` is a name or several. `rows`: {number of a tensor: how many rows
    there are of what it looks up}.
    """
    for name in variant.split(", "):
        generator = torch.Generator().manual_seed(seed)
        if name in NUMBERS:
            structure = _other_numbers(structure, NUMBERS[name])
        elif name == "apart":
            flat = list(flat)
            structure = _apart(structure, flat, set())
        elif name == "gaps":
            flat = _with_gaps(flat)
        elif name in INTEGERS:  # but where rows are named: there is none of that
            flat = [_with(INTEGERS[name], t) if n not in rows else t for n, t in enumerate(flat)]
        elif name == "any row":
            flat = [_any(t, rows[n], generator) if n in rows else t for n, t in enumerate(flat)]
        elif name == "no such row":
            flat = [_beyond(t, rows[n]) if n in rows else t for n, t in enumerate(flat)]
        elif name in MASKS:
            flat = [MASKS[name](t, *_meanings(t), generator) if _meanings(t) else t for t in flat]
        elif name in SIZES:
            flat = SIZES[name](flat)
        elif name not in (STRIDED, ROWS_APART, OTHER_CONSTANTS):
            flat = [VALUES[name](t) for t in flat]
    return structure, flat


def is_varied(structure, flat, other_structure, others):
    """Whether anything is another than before, by which a question is worth its time."""
    if structure != other_structure:
        return True
    return any(
        (a.shape, a.dtype) != (b.shape, b.dtype) or not torch.equal(a, b) for a, b in zip(flat, others, strict=True)
    )


def _other_numbers(node, change):
    if node["t"] == "value":
        return {**node, "v": change(node["v"])}
    return {**node, "items": [_other_numbers(each, change) for each in node["items"]]} if "items" in node else node


NUMBERS = {
    "other numbers": lambda value: value * FACTOR if type(value) is float else value,
    "nearly the same numbers": lambda value: value * NEARLY if type(value) is float else value,
    "one more": lambda value: value + 1 if type(value) is int else value,
    "twice as many": lambda value: value * 2 if type(value) is int else value,
}


def _apart(node, flat, seen):
    """What is given more than once, given as tensors of their own."""
    if node["t"] == "tensor" and node["i"] in seen:
        flat.append(flat[node["i"]].flatten().roll(1).reshape(flat[node["i"]].shape))
        return {**node, "i": len(flat) - 1}
    if node["t"] == "tensor":
        seen.add(node["i"])
    return {**node, "items": [_apart(each, flat, seen) for each in node["items"]]} if "items" in node else node


def _with_gaps(flat):
    """No numbers where a mask says that nothing counts."""
    found = list(flat)
    for mask in (t for t in flat if _meanings(t)):
        places = mask == _meanings(mask)[1]
        for at, tensor in enumerate(found):
            if tensor.is_floating_point() and tensor.dim() > mask.dim() and tensor.shape[: mask.dim()] == mask.shape:
                found[at] = tensor.masked_fill(
                    places.reshape(*mask.shape, *[1] * (tensor.dim() - mask.dim())), float("nan")
                )
    return found


def _with(integer, tensor):
    """In every fourth place of integers that are no mask; of positions the first."""
    if not is_integer(tensor) or tensor.dtype == torch.uint8 or _meanings(tensor):
        return tensor
    found = tensor.clone()
    if _are_positions(tensor):
        found[..., 0] = integer
    else:
        found.flatten()[::4] = integer
    return found


def _are_positions(tensor):
    """Of which none comes twice: of what is written to one place twice, either may be left."""
    if not is_integer(tensor) or not tensor.dim() or tensor.shape[-1] < 2:
        return False
    return bool((tensor[..., 1:] > tensor[..., :-1]).all())


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
    """Of each row a part counts, from its beginning or, of every second item, up to its end."""
    length = tensor.shape[-1]
    lengths = torch.randint(1, length, (*tensor.shape[:-1], 1), generator=generator)
    places = torch.arange(length).expand(tensor.shape) < lengths
    if tensor.dim() > 1:
        places[1::2] = places[1::2].flip(-1)
    return torch.where(places, counts, left_out).to(tensor)


def _with_holes(tensor, counts, left_out, generator):
    """What counts is anywhere, but for the first of each row."""
    places = torch.rand(tensor.shape, generator=generator) < 0.5
    places[..., 0] = True
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
        wanted = int(length * factor) if factor > 1 else max(1, int(length * factor) - 1 | 1)  # an odd number
        places = torch.arange(wanted) % max(1, length)
        return [t[:, places.to(t.device)] if t.dim() > 1 and t.shape[1] == length > 1 else t for t in flat]

    return changed


def _wider(least):
    """One more of the last dimension, of what has as many as the first tensor of `least` dimensions or more."""

    def changed(flat):
        wide = [t.dim() >= least and t.is_floating_point() for t in flat]
        width = next((t.shape[-1] for t, is_wide in zip(flat, wide, strict=True) if is_wide), 0)
        return [
            torch.cat([t, t[..., -1:]], -1) if is_wide and t.shape[-1] == width > 0 else t
            for t, is_wide in zip(flat, wide, strict=True)
        ]

    return changed


def _zeros(tensor):
    """In all of the first row."""
    if not tensor.is_floating_point() or tensor.dim() < 2:
        return tensor
    found = tensor.clone()
    found.flatten(0, -2)[:1] = 0
    return found


def _masks_of_another_type(tensor):
    if not _meanings(tensor) or tensor.is_floating_point():
        return tensor
    return tensor.to(torch.int64 if tensor.dtype == torch.bool else torch.bool)


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
        if not tensor.numel() or _are_positions(tensor):
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


def in_another_place(tensor, how):
    """The same numbers in every second place of a larger memory, and not from its beginning; or its rows apart."""
    if not tensor.dim() or (how == ROWS_APART and tensor.dim() < 2):
        return tensor
    if how == ROWS_APART:
        wide = tensor.new_empty((*tensor.shape[:-1], tensor.shape[-1] + 3))
        return wide[..., 1:-2].copy_(tensor)
    wide = tensor.new_empty((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1))
    return wide[..., 1::2].copy_(tensor)


def _but_for_rounding(tensor):
    if not tensor.is_floating_point():
        return tensor
    moved = 1 + _rounding(tensor) * torch.randn(tensor.shape, device=tensor.device)
    return (tensor.double() * moved).to(tensor.dtype)


# what holds only for the usual distribution fails on these
VALUES = {
    "sorted": _sorted,
    "rows alike": _rows_alike,
    "another type": _of_another_type,
    "masks of another type": _masks_of_another_type,
    "a row of zeros": _zeros,
    "negated": _negated,
    "huge": _times(HUGE),
    "large": _times(LARGE),
    "scaled": _times(SCALED),
    "tiny": _times(TINY),
    "not a number": _with_nan,
    "but for rounding": _but_for_rounding,
    "roughly": lambda tensor: tensor,  # how answers are compared
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
    "of length one": _times_as_long(0),
    "wider": _wider(2),
    "wider images": _wider(4),
}
MASKS = {"padded": _padded, "with holes": _with_holes, "full and empty": _full_and_empty}
INTEGERS = {"minus one": -1, "minus a hundred": LEFT_OUT}
