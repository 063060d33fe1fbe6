"""What a script gives its calls: nestings of tensors and plain values, and how a tensor looked, to draw others."""

from __future__ import annotations

import dataclasses

import torch

from .tensors import attributes, remade

# Nestings: tuples, lists, dictionaries of any class with names as keys, and dataclasses

PLAIN = (type(None), bool, int, float, str)


def parts_of(value):
    """{name: part} of a nesting; None for what is none, which is passed on as an object."""
    if isinstance(value, dict):
        return dict(value) if all(isinstance(key, str) for key in value) else None
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return {str(index): item for index, item in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return attributes(value)
    return None


def rebuilt(like, parts):
    """A nesting with other parts."""
    if isinstance(like, (tuple, list)):
        return type(like)(*parts.values()) if hasattr(like, "_fields") else type(like)(parts.values())
    if isinstance(like, dict):
        return parts if type(like) is dict else type(like)(**parts)
    return remade(type(like), parts)


def at(value, path):
    """What lies in a nesting."""
    for name in path:
        value = parts_of(value)[name]
    return value


class Tensor:
    """A tensor that was given: what it looked like, and where the same one was seen first."""

    def __init__(self, first, looks):
        self.first, self.looks = first, looks

    @property
    def identity(self):
        """Which tensor it was, and what was in it."""
        return self.first, id(self.looks)


class Ref:
    """An object that is no tensor and no nesting: where it was seen first."""

    def __init__(self, first):
        self.first = first


class Looks:
    """What a tensor looked like, to draw others like it. Holds its values only where they have a pattern."""

    def __init__(self, value):
        self.shape, self.dtype, self.device, self.stride = value.shape, value.dtype, value.device, value.stride()
        self.same, self.range, self.normal = None, None, None
        self.rows = None  # of the embedding that it indexes, unless by positions
        if value.numel() < 2 or value.is_complex() or value.dtype == torch.bool or _has_pattern(value):
            self.same = value.cpu().clone()
        elif value.is_floating_point():
            wide = value.float()
            low, high = wide.min().item(), wide.max().item()
            self.normal = (wide.mean().item(), wide.std().item(), low, high)
        else:
            self.range = (value.min().item(), value.max().item())

    @property
    def rises(self):
        """Whether it counts, as positions do."""
        return self.same is not None and bool(_step(self.same))

    def __eq__(self, other):
        return (self.shape, self.dtype, self.device) == (other.shape, other.dtype, other.device)

    def __hash__(self):
        return hash((self.shape, self.dtype))

    def draw(self, generator):
        """On its device, with its strides."""
        if self.rows is not None:
            drawn = torch.randint(self.rows, self.shape, generator=generator)
        elif self.same is not None:
            drawn = self.same
        elif self.range is not None:
            drawn = torch.randint(self.range[0], self.range[1] + 1, self.shape, generator=generator)
        else:
            mean, deviation, low, high = self.normal
            drawn = (torch.randn(self.shape, generator=generator) * deviation + mean).clamp(low, high)
        into = torch.empty_strided(self.shape, _without_overlap(self.shape, self.stride), dtype=self.dtype)
        return into.copy_(drawn).to(self.device)


def _has_pattern(value):
    """Masks, positions, constants: what is drawn at random would mean something else."""
    flat = value.flatten()
    if value.is_floating_point() and not bool(torch.isfinite(flat).all()):
        return True
    if value.is_floating_point():
        sample = flat if flat.numel() <= 1 << 16 else flat[: 1 << 16]
        return torch.unique(sample).numel() <= 2 and torch.unique(flat).numel() <= 2
    if bool(((flat == 0) | (flat == 1)).all()):
        return True
    return _step(value) is not None


def _step(value):
    """From each number of a row to the next, where it is the same all over."""
    if value.dim() == 0 or value.shape[-1] < 2 or value.numel() == 0:
        return None
    rows = value.reshape(-1, value.shape[-1])
    steps = rows[:, 1:] - rows[:, :-1]
    return steps[0, 0] if bool((steps == steps[0, 0]).all()) else None


def _without_overlap(shape, stride):
    """A tensor that was expanded gets memory of its own."""
    if any(s == 0 and n > 1 for n, s in zip(shape, stride, strict=True)):
        return torch.empty(shape, device="meta").stride()
    return stride


def holds_tensors(value, depth=3):
    """Whether it is a state that calls hand on, and no setting."""
    if isinstance(value, torch.Tensor):
        return True
    if depth == 0 or isinstance(value, (*PLAIN, type, torch.nn.Module)):
        return False
    parts = value if isinstance(value, dict) else parts_of(value)
    inside = parts.values() if parts is not None else vars(value).values() if hasattr(value, "__dict__") else ()
    return any(holds_tensors(part, depth - 1) for part in inside)
