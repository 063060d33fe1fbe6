# Ratchet: watched.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a module still is what it was: its parts, their plain attributes, hooks, weights and buffers.

Each call looks at each of them, so it is for modules that take much longer. What writes to the memory of a weight
behind torch's back (`p.data.mul_()`, a kernel of one's own) is not seen; what replaces a weight or its data is.
"""

import operator
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Watched:
    """A module as it is now. `leave_out` are classes of parts that somebody else watches.

    `usable` says whether a call of it only computes: nothing in it is hooked, is in training, or lies in inference
    tensors, whose changes are not counted, and no part has a `forward` of its own that is not its class's.
    """

    def __init__(self, module, leave_out=()):
        self._held, self._parts, self._plain, self._tensors = [], [], [], []
        self.usable = True
        for part in module.modules():
            if isinstance(part, leave_out):
                continue
            attributes = vars(part)
            self._held += [attributes, *(attributes[n] for n in (*_HOOKS, "_modules", "_parameters", "_buffers"))]
            self._parts += [(part._modules, name, _reference(child)) for name, child in part._modules.items()]
            self._plain += [(attributes, name, v) for name, v in attributes.items() if isinstance(v, _PLAIN)]
            for held in (part._parameters, part._buffers):
                self._tensors += [(held, name, *_facts(tensor)) for name, tensor in held.items() if tensor is not None]
                self._parts += [(held, name, _nothing) for name, tensor in held.items() if tensor is None]
            self.usable &= not part.training and not any(
                attributes[name] for name in (*_HOOKS, "forward") if name in attributes
            )
        self.usable &= not any(reference().is_inference() for _, _, reference, *_ in self._tensors)
        self._sizes = _sizes(self._held)
        self._parts, self._plain = _columns(self._parts), _columns(self._plain)

    def is_unchanged(self):
        """Asked in each call, of hundreds of parts: most is compared without a line of Python for each."""
        if _sizes(self._held) != self._sizes:
            return False
        held, names, references = self._parts
        if not all(map(operator.is_, map(dict.get, held, names), [reference() for reference in references])):
            return False
        held, names, values = self._plain
        now = list(map(dict.get, held, names, held))
        if not all(map(operator.is_, now, values)) and not all(map(_is_equal, now, values)):
            return False
        for held, name, reference, storage, address, version in self._tensors:
            tensor = held.get(name)
            if tensor is None or tensor is not reference() or tensor._version != version:
                return False
            # the weak reference keeps the storage's own address from being used again, but not that of its data
            if tensor.data_ptr() != address or tensor.untyped_storage()._cdata != storage.cdata:
                return False
        return True

    def needs_gradient(self):
        return any(held[name].requires_grad for held, name, *_ in self._tensors if held.get(name) is not None)


def _sizes(held):
    return list(map(len, held))


def _columns(rows):
    return tuple(zip(*rows, strict=True)) or ((), (), ())


def _is_equal(now, value):
    return type(now) is type(value) and now == value


def _nothing():
    """What a reference to None answers: a part or a weight that is not there may come later."""


def _reference(child):
    return _nothing if child is None else weakref.ref(child)


def _facts(tensor):
    version = None if tensor.is_inference() else tensor._version
    return weakref.ref(tensor), StorageWeakRef(tensor.untyped_storage()), tensor.data_ptr(), version
