"""Flatten nested results into tensors, and move them to and from tensor files.

What is no tensor becomes a value, a node of a kind that `_MADE` lists, or an opaque node. Of results, the host decides
what an opaque node means; arguments that have one are refused, because None would arrive in its place. An object
arrives with its attributes, and neither `__init__` nor `__post_init__` runs again; a device that has a number arrives
as the first of its type, as the tensors on it do.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import enum
import importlib
import os
import random
from itertools import count, pairwise

import torch

from . import arrays, seal, tensor_file
from .memory import is_spread, storage_bytes
from .workload import WorkloadProblem

MAX_DEPTH = 32
PLACES = 64  # of a large tensor, from which rows are taken
_DTYPES = {name: getattr(torch, name) for name in tensor_file.ITEM_BYTES if hasattr(torch, name)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_SCALARS = (type(None), bool, int, float, str)
_TORCH = {str(v): v for v in vars(torch).values() if isinstance(v, (torch.dtype, torch.layout, torch.memory_format))}
# by class: the kind of its node, and the parts which that has
_PARTS = {
    tuple: ("tuple", tuple),
    list: ("list", list),
    torch.Size: ("size", tuple),
    slice: ("slice", lambda value: (value.start, value.stop, value.step)),
    range: ("range", lambda value: (value.start, value.stop, value.step)),
    complex: ("complex", lambda value: (value.real, value.imag)),
    torch.device: ("device", lambda value: (value.type,) if value.index is None else (value.type, 0)),
    **dict.fromkeys((torch.dtype, torch.layout, torch.memory_format), ("torch", lambda value: (str(value),))),
    **dict.fromkeys((bytes, bytearray), ("bytes", lambda value: (value.hex(),))),
    collections.deque: ("deque", lambda value: (value.maxlen, *value)),
}
_MADE = {
    "tuple": tuple,
    "list": list,
    "size": torch.Size,
    "slice": lambda parts: slice(*parts),
    "range": lambda parts: range(*parts),
    "complex": lambda parts: complex(*parts),
    "device": lambda parts: torch.device(*parts),
    "torch": lambda parts: _TORCH[parts[0]],
    "numpy": lambda parts: arrays.number(*parts),
    "array": lambda parts: parts[0].numpy(),
    "texts": lambda parts: arrays.of_texts(*parts),
    "bytes": lambda parts: bytes.fromhex(parts[0]),
    "deque": lambda parts: collections.deque(parts[1:], parts[0]),
    "set": set,
    "frozenset": frozenset,
}


def flatten(value, once=False):
    """(structure, tensors) of any nesting of tuples, lists, dicts, dataclasses, named tuples and plain objects.

    `once`: a tensor that is in several places is one of the tensors, and comes back as one.
    """
    tensors = []
    return _node(value, tensors, {} if once else None, 0, set()), tensors


def _node(value, tensors, places, depth, seen):
    if isinstance(value, torch.Tensor):
        place = len(tensors) if places is None else places.setdefault(id(value), len(tensors))
        if place == len(tensors):
            tensors.append(value)
        return {"t": "tensor", "i": place}
    if type(value) in _SCALARS:
        return {"t": "value", "v": value}
    name = _name(type(value))
    if depth > MAX_DEPTH or id(value) in seen or callable(value):
        is_class = isinstance(value, type) and _is_found(value)
        return {"t": "class", "class": _name(value)} if is_class else {"t": "opaque", "class": name}
    seen = seen | {id(value)}

    def inner(items):
        return [_node(item, tensors, places, depth + 1, seen) for item in items]

    if type(value) in _PARTS:
        kind, parts = _PARTS[type(value)]
        return {"t": kind, "items": inner(parts(value))}
    if type(value) is dict and all(isinstance(key, (str, int)) for key in value):
        return {"t": "dict", "keys": list(value), "items": inner(value.values())}
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        return {"t": "pairs", "class": name, "items": inner(value.items())}
    if type(value) in (set, frozenset) and all(map(_is_plain, value)):
        in_order = sorted(value, key=lambda item: (str(type(item)), repr(item)))
        return {"t": type(value).__name__, "items": inner(in_order)}
    if arrays.is_array(value):
        is_plain_array = value.flags.writeable and all(stride >= 0 for stride in value.strides)
        return {"t": "array", "items": inner((torch.from_numpy(value if is_plain_array else value.copy()),))}
    if arrays.is_of_texts(value):
        return {"t": "texts", "items": inner((value.dtype.str, value.tolist()))}
    if arrays.is_number(value):
        return {"t": "numpy", "items": inner((value.dtype.name, value.item()))}
    if isinstance(value, _SCALARS):
        return {"t": "value", "v": value}
    if isinstance(value, enum.Enum) and value.name in type(value).__members__:
        return {"t": "member", "class": name, "v": value.name}
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):  # classes of their own, torch.return_types
        return {"t": "sequence", "class": name, "items": inner(value)}
    fields = _fields(value)
    if fields is None:
        return {"t": "opaque", "class": name}
    return {"t": "object", "class": name, "keys": list(fields), "items": inner(fields.values())}


def layout(structure):
    """A structure without the plain values in it: what is left says where its tensors are."""
    if structure is None or structure["t"] == "value":
        return None
    items = {"items": [layout(item) for item in structure["items"]]} if "items" in structure else {}
    return {**structure, **items}


def _fields(value):
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, dict):  # ordered and attribute dictionaries, model outputs
        return dict(value)
    if dataclasses.is_dataclass(value):
        return attributes(value)
    return dict(vars(value)) if hasattr(value, "__dict__") else None


def attributes(value):
    """{name: value} of an instance of a dataclass: the fields that it has, and what it holds beside them."""
    fields = {
        field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)
    }
    return {**fields, **getattr(value, "__dict__", {})}


def remade(cls, parts):
    """An instance of a dataclass with these attributes, frozen or not. Nothing of the class runs."""
    value = object.__new__(cls)
    for name, part in parts.items():
        object.__setattr__(value, name, part)
    return value


def given(value, of=""):
    """`flatten` of arguments. `of` says whose they are. Raises: WorkloadProblem where one cannot be handed over."""
    structure, tensors = flatten(value, once=True)
    for path, what in _unfit(structure, tensors):
        raise WorkloadProblem("bad_declaration", f"argument {path}{of} is a {what}, which cannot be handed over")
    return structure, tensors


def _unfit(node, tensors, path=""):
    """(where it is, what it is) of each part that would arrive as something else, or not at all."""
    if node["t"] == "opaque":
        yield path, node["class"].removeprefix("builtins:").replace(":", ".")
    if node["t"] == "tensor" and not is_plain(tensors[node["i"]]):
        yield path, f"{tensors[node['i']].layout} tensor"
    for key, item in zip(node.get("keys") or count(), node.get("items", ()), strict=False):
        yield from _unfit(item, tensors, f"{path}.{key}" if path else str(key))


def is_plain(tensor):
    """Whether its shape, strides and elements say all about it."""
    return tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested


def _is_plain(value):
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in _SCALARS


def _name(cls):
    return f"{cls.__module__}:{cls.__qualname__}"


def _found(name):
    """The class of this name. Raises: ImportError, AttributeError, TypeError."""
    module, _, qualname = name.partition(":")
    cls = importlib.import_module(module)
    for part in qualname.split("."):
        cls = getattr(cls, part)
    if not isinstance(cls, type):
        raise TypeError(f"{name} is no class")
    return cls


def _is_found(cls):
    try:
        return _found(_name(cls)) is cls
    except (ImportError, AttributeError, TypeError, ValueError):
        return False


def unflatten(node, tensors):
    """The nesting again. Objects are made from their class, which must be importable here."""
    kind = node["t"]
    if kind == "tensor":
        return tensors[node["i"]]
    if kind == "value":
        return node["v"]
    if kind == "opaque":
        return None
    if kind == "class":
        return _found(node["class"])
    if kind == "member":
        return _found(node["class"]).__members__[node["v"]]
    items = [unflatten(item, tensors) for item in node["items"]]
    if kind in _MADE:
        return _MADE[kind](items)
    if kind == "sequence":
        return _sequence(_found(node["class"]), items)
    if kind == "pairs":
        return _dictionary(_found(node["class"]), items)
    fields = dict(zip(node["keys"], items, strict=True))
    return fields if kind == "dict" else _rebuild(_found(node["class"]), fields)


def _sequence(cls, items):
    if issubclass(cls, tuple):
        return cls(items)
    if not issubclass(cls, list):
        raise TypeError(f"{cls.__qualname__} is no sequence")
    value = cls.__new__(cls)
    list.extend(value, items)
    return value


def _dictionary(cls, pairs):
    if not issubclass(cls, dict):
        raise TypeError(f"{cls.__qualname__} is no dictionary")
    value = cls()
    value.update(pairs)
    return value


def _rebuild(cls, fields):
    if issubclass(cls, (tuple, dict)):
        return cls(**fields)
    if dataclasses.is_dataclass(cls):
        return remade(cls, fields)
    value = object.__new__(cls)
    vars(value).update(fields)
    return value


def save(path, value, once=False):
    """Write a nesting of tensors. The file appears whole or not at all."""
    structure, tensors = flatten(value, once)
    save_flat(path, structure, tensors)


def some_rows(tensors, most):
    """[index, shape, where rows of the last dimension begin, how many are taken from there] of each that has more than
    `most` bytes, so that about so many are left: as likely each row, but the first and the last always.
    """
    chosen, secret = [], random.SystemRandom()
    for index, tensor in enumerate(tensors):
        nbytes = tensor.numel() * tensor.element_size()
        rows = tensor.numel() // tensor.shape[-1] if most and nbytes > most else 0
        if rows >= 2 * PLACES:
            together = max(1, rows * most // (nbytes * PLACES))
            places = [rows * place // PLACES for place in range(PLACES + 1)]
            drawn = (secret.randrange(begin - together + 1, end) for begin, end in pairwise(places))
            begins = [0, *(min(max(0, begin), rows - together) for begin in drawn), rows - together]
            chosen.append((index, list(tensor.shape), begins, together))
    return chosen


def save_flat(path, structure, tensors, borrowed=None, key=None, rows=()):
    """`borrowed` says for each tensor whose memory it shares, empty for its own; with a `key` all is sealed.

    `rows` are as `some_rows` answers: of a tensor that has this shape only these are written.
    """
    leaves, hosts, offset = [], [], 0
    chosen = {index: how for index, *how in rows}
    for index, tensor in enumerate(tensors):
        stride = _stride(tensor)
        plain = tensor.detach().resolve_conj().resolve_neg()
        if key is not None:  # where it lies, since a device is quicker at that
            plain = plain.clone(memory_format=torch.contiguous_format)
            seal.turn(plain, key, index)
        shape, begins, together = chosen.get(index, (None, (), 0))
        partly = list(plain.shape) == shape
        if partly:
            flat = plain.reshape(-1, shape[-1])
            plain = torch.cat([flat[begin : begin + together] for begin in begins])
        host = plain.cpu().contiguous()
        nbytes = host.numel() * host.element_size()
        leaves.append(
            {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(plain.shape),
                **({"whole": shape} if partly else {}),
                "offset": offset,
                "nbytes": nbytes,
                "device": tensor.device.type,
                "kind": _kind(tensor),
                "stride": None if partly else stride,
                "grad": tensor.requires_grad,
                "borrowed": borrowed[index] if borrowed else "",
                "keeps": storage_bytes(tensor),
                "inference": tensor.is_inference(),
                "spread": is_spread(tensor),
                "contiguous": tensor.layout != torch.strided or tensor.is_contiguous(),
            }
        )
        hosts.append(host)
        offset = tensor_file.aligned(offset + nbytes)
    structure = structure if key is None else seal.hidden(structure, key)
    partial = f"{path}.partial"
    with open(partial, "wb") as file:
        tensor_file.write_header(file, {"structure": structure, "leaves": leaves})
        start = file.tell()
        for leaf, host in zip(leaves, hosts, strict=True):
            file.seek(start + leaf["offset"])
            if leaf["nbytes"]:
                file.write((ctypes.c_char * leaf["nbytes"]).from_address(host.data_ptr()))
        file.truncate(start + offset)
    os.replace(partial, path)


def _kind(tensor):
    """The plain name only for torch's own classes, because any subclass may call itself `Tensor`."""
    cls = type(tensor)
    return cls.__name__ if cls in (torch.Tensor, torch.nn.Parameter) else f"{cls.__module__}:{cls.__qualname__}"


def _stride(tensor):
    """The strides to restore when the original is dense in another order than that of its file."""
    if not is_plain(tensor):
        raise TypeError(f"a {tensor.layout} tensor cannot be compared: return a dense one, as to_dense() makes")
    if not tensor.is_contiguous() and tensor.numel() == 1 + sum(
        (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    ):
        return list(tensor.stride())
    return None


class Loaded:
    """Tensors of a file, each on the device it was saved from; sealed if they were saved so."""

    def __init__(self, path):
        with open(path, "rb") as file:
            header, start = tensor_file.read_header(file, os.path.getsize(path))
            self.structure, self.leaves, self.tensors = header["structure"], header["leaves"], []
            for leaf in self.leaves:
                file.seek(start + leaf["offset"])
                host = _read(leaf, file)
                host = host if seal.is_hidden(self.structure) else _in_order(leaf, host)
                self.tensors.append(host.to(leaf["device"]))

    def opened(self, key=None):
        """(structure, tensors), once. Raises: ValueError where it is sealed with another key."""
        if not seal.is_hidden(self.structure):
            return self.structure, self.tensors
        structure, found = seal.shown(self.structure, key), []
        for index, leaf in enumerate(self.leaves):
            tensor = self.tensors.pop(0)
            seal.turn(tensor, key, index)
            found.append(_in_order(leaf, tensor))
        return structure, found


def _read(leaf, file):
    """Read into memory of torch's own allocator, aligned as the target's would be."""
    host = torch.empty(leaf["shape"], dtype=_DTYPES[leaf["dtype"]])
    if leaf["nbytes"]:
        file.readinto((ctypes.c_char * leaf["nbytes"]).from_address(host.data_ptr()))
    return host


def _in_order(leaf, tensor):
    if not leaf["stride"]:
        return tensor
    return torch.empty_strided(leaf["shape"], leaf["stride"], dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def load(path):
    return unflatten(*Loaded(path).opened())
