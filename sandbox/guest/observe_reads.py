"""What of an operation's operands Python reads, so that it waits for the device and a recording would not follow.
What an operation copies from the host to a device, which cannot be recorded at all.

Some operations say so by their names. Others take a tensor where a number belongs, give a result whose size depends on
values, or move what is on a device to the host. What torch reads inside of an operation without any such sign is not
seen.
"""

from __future__ import annotations

import torch


def _words(text):
    return frozenset(text.split())


# what Python is given is numbers, so that tensors can be made of them
GIVES_NUMBERS = _words("item tolist numpy __array__ __int__ __float__ __complex__ __index__")
_BY_NAME = GIVES_NUMBERS | _words("__bool__ is_nonzero equal allclose __contains__ __format__")
# of plain values; the others that make tensors give what shapes decide, or cannot be seen
MADE_OF_VALUES = _words(
    "tensor as_tensor asarray scalar_tensor new_tensor arange range linspace logspace full new_full"
)
_FACTORIES = _words("arange range zeros ones empty full rand randn eye tensor as_tensor asarray")
_TAKE_NUMBERS = _words("""
    narrow view reshape expand repeat tile new_zeros new_ones new_empty new_full full_like split chunk
    tensor_split topk unflatten unfold roll
""")
_MADE_OF_LISTS = _words("tensor as_tensor asarray new_tensor")
_MOVING = _words("to cuda type type_as tensor as_tensor asarray")
_SIZED_BY_VALUES = _words("nonzero argwhere unique unique_consecutive bincount")


def said_by_name(name):
    return name in _BY_NAME


def on_host(tensor):
    return tensor.device.type == "cpu"


def read_of(name, args, kwargs, result):
    """Tensors among the arguments whose values the host needs before the operation can go on."""
    if name in ("__getitem__", "__setitem__"):
        found = _in_index(args[1], masks=name == "__getitem__" or _is_many(args[2]))
    elif name in _FACTORIES:
        whole = args[0] if args and name in ("tensor", "as_tensor", "asarray") else None
        found = (tensor for tensor in _numbers((args, kwargs)) if tensor is not whole)
    elif name in _TAKE_NUMBERS:
        found = _numbers((args[1:], kwargs))
    else:
        found = [_sized_by(name, args, kwargs), _moved(name, args, kwargs, result)]
    return [tensor for tensor in found if isinstance(tensor, torch.Tensor)]


def sent_by(name, args, kwargs, result):
    """Tensors whose values go from the host to a device: operands, or a result that is made of a list there."""
    first = args[0] if args else kwargs.get("data")
    if name in _MOVING and isinstance(first, torch.Tensor):
        into, found = result, [first]
    elif name in _MADE_OF_LISTS:
        return [result] if isinstance(result, torch.Tensor) and not on_host(result) else []
    elif name == "copy_":
        into, found = first, [args[1] if len(args) > 1 else kwargs.get("src")]
    elif name in ("__getitem__", "__setitem__"):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        into, found = first, [*args[2:], *(i for i in index if isinstance(i, torch.Tensor) and i.dim())]
    else:
        return []
    there = isinstance(into, torch.Tensor) and not on_host(into)
    return [tensor for tensor in found if isinstance(tensor, torch.Tensor) and on_host(tensor)] if there else []


def _sized_by(name, args, kwargs):
    """What decides how large the result is."""
    first = args[0] if args else kwargs.get("input")
    if name in _SIZED_BY_VALUES:
        return first
    if name == "where" and len(args) + len(kwargs) == 1:
        return kwargs.get("condition", first)
    if name == "masked_select":
        return args[1] if len(args) > 1 else kwargs.get("mask")
    if name == "repeat_interleave" and kwargs.get("output_size") is None:
        return args[1] if len(args) > 1 else kwargs.get("repeats", first)
    return None


def _moved(name, args, kwargs, result):
    """What goes from a device to the host, which waits for it."""
    if kwargs.get("non_blocking") or name not in ("cpu", "to", "copy_"):
        return None
    source = args[0] if name != "copy_" else args[1] if len(args) > 1 else kwargs.get("src")
    arrives = isinstance(source, torch.Tensor) and isinstance(result, torch.Tensor) and on_host(result)
    return source if arrives and not on_host(source) else None


def _in_index(index, masks):
    """Numbers, also as ends of slices, and masks, whose values decide how large the result is."""
    for item in index if isinstance(index, tuple) else (index,):
        if isinstance(item, slice):
            yield from (end for end in (item.start, item.stop, item.step) if isinstance(end, torch.Tensor))
        elif isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
            yield from [item] if masks else []
        elif isinstance(item, torch.Tensor) and item.dim() == 0:
            yield item


def _is_many(value):
    """Of one value that a mask is given, torch makes a fill."""
    return isinstance(value, torch.Tensor) and value.numel() != 1


def _numbers(value, depth=0):
    if isinstance(value, torch.Tensor):
        if value.dim() == 0:
            yield value
    elif isinstance(value, (tuple, list, dict)) and depth < 4:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item, depth + 1)
