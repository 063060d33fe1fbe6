"""Flatten nested results into tensors, and move them to and from tensor files.

Refuses nothing silently: what is no tensor becomes a value or an opaque node, and the host decides what that means.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os

import torch

from . import seal, tensor_file

MAX_DEPTH = 32
_DTYPES = {name: getattr(torch, name) for name in tensor_file.ITEM_BYTES if hasattr(torch, name)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_SCALARS = (type(None), bool, int, float, str)


def flatten(value):
    """(structure, tensors) of any nesting of tuples, lists, dicts, dataclasses, named tuples and plain objects."""
    tensors = []
    return _node(value, tensors, 0, set()), tensors


def _node(value, tensors, depth, seen):
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"t": "tensor", "i": len(tensors) - 1}
    if isinstance(value, _SCALARS):
        return {"t": "value", "v": value}
    name = type(value).__module__ + ":" + type(value).__qualname__
    if depth > MAX_DEPTH or id(value) in seen or isinstance(value, (torch.nn.Module, type)) or callable(value):
        return {"t": "opaque", "class": name}
    seen = seen | {id(value)}

    def inner(items):
        return [_node(item, tensors, depth + 1, seen) for item in items]

    if type(value) in (tuple, list):
        return {"t": type(value).__name__, "items": inner(value)}
    if type(value) is dict and all(isinstance(key, (str, int)) for key in value):
        return {"t": "dict", "keys": list(value), "items": inner(value.values())}
    fields = _fields(value)
    if fields is None:
        return {"t": "opaque", "class": name}
    return {"t": "object", "class": name, "keys": list(fields), "items": inner(fields.values())}


def _fields(value):
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, dict):  # ordered and attribute dictionaries, model outputs
        return {str(key): item for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(vars(value)) if hasattr(value, "__dict__") else None


def unflatten(node, tensors):
    """The nesting again. Objects are made from their class, which must be importable here."""
    kind = node["t"]
    if kind == "tensor":
        return tensors[node["i"]]
    if kind == "value":
        return node["v"]
    if kind == "opaque":
        return None
    items = [unflatten(item, tensors) for item in node["items"]]
    if kind == "tuple":
        return tuple(items)
    if kind == "list":
        return items
    fields = dict(zip(node["keys"], items, strict=True))
    return fields if kind == "dict" else _rebuild(node["class"], fields)


def _rebuild(name, fields):
    module, _, qualname = name.partition(":")
    cls = importlib.import_module(module)
    for part in qualname.split("."):
        cls = getattr(cls, part)
    if issubclass(cls, tuple):
        return cls(**fields)
    if dataclasses.is_dataclass(cls) or issubclass(cls, dict):
        return cls(**fields)
    value = object.__new__(cls)
    vars(value).update(fields)
    return value


def save(path, value):
    """Write a nesting of tensors. The file appears whole or not at all."""
    structure, tensors = flatten(value)
    save_flat(path, structure, tensors)


def save_flat(path, structure, tensors, borrowed=None, key=None):
    """`borrowed` says for each tensor whose memory it shares, empty for its own; with a `key` all is sealed."""
    leaves, hosts, offset = [], [], 0
    for index, tensor in enumerate(tensors):
        stride = _stride(tensor)
        plain = tensor.detach().resolve_conj().resolve_neg()
        if key is not None:  # where it lies, since a device is quicker at that
            plain = plain.clone(memory_format=torch.contiguous_format)
            seal.turn(plain, key, index)
        host = plain.cpu().contiguous()
        nbytes = host.numel() * host.element_size()
        leaves.append({
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "offset": offset, "nbytes": nbytes,
            "device": tensor.device.type, "kind": _kind(tensor), "stride": stride, "grad": tensor.requires_grad,
            "borrowed": borrowed[index] if borrowed else "",
        })  # fmt: skip
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
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"a {tensor.layout} tensor cannot be compared; declare outputs() to say what counts")
    if not tensor.is_contiguous() and tensor.numel() == 1 + sum(
        (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    ):
        return list(tensor.stride())
    return None


def load_flat(path, device=None):
    """(structure, tensors), each on the device it was saved from, or on `device`."""
    return Loaded(path, device).opened()


class Loaded:
    """Tensors of a file, each on the device it was saved from, or on `device`; sealed if they were saved so."""

    def __init__(self, path, device=None):
        with open(path, "rb") as file:
            header, start = tensor_file.read_header(file, os.path.getsize(path))
            self.structure, self.leaves, self.tensors = header["structure"], header["leaves"], []
            for leaf in self.leaves:
                file.seek(start + leaf["offset"])
                host = _read(leaf, file)
                host = host if seal.is_hidden(self.structure) else _in_order(leaf, host)
                self.tensors.append(host.to(device or leaf["device"]))

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


def load(path, device=None):
    structure, tensors = load_flat(path, device)
    return unflatten(structure, tensors)
