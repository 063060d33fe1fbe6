# Ratchet: watched.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a module still is what it was: its parts, their attributes, hooks, weights and buffers.

Each call looks at each of them, so it is for modules that take much longer. What writes to the memory of a weight
behind torch's back (`p.data.mul_()`, a kernel of one's own) is not seen; what replaces a weight or its data is. Of
attributes that are objects of other classes, such as a configuration, only another object is seen.
"""

import operator
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

MOST_ELEMENTS = 1000  # of a container that is looked into at each call; what is larger is a vocabulary, say

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_EACH = frozenset(vars(torch.nn.Module()))  # what every module has
_CONTAINERS = (list, tuple, set, dict)


class Watched:
    """A module as it is now. `leave_out` are classes of parts that somebody else watches.

    `usable` says whether a call of it only computes from what is looked at here: nothing in it is hooked, is in
    training, lies in inference tensors, whose changes are not counted, or in memory that processes share, no part has a
    `forward` of its own that is not its class's, and no list or other container holds weights or parts that the module
    does not know.
    """

    def __init__(self, module, leave_out=()):
        self._held, self._parts, self._plain, self._tensors, self._contents = [], [], [], [], []
        self.usable = True
        known = {id(each) for each in (*module.modules(), *module.parameters(), *module.buffers())}
        for part in module.modules():
            if isinstance(part, leave_out) or getattr(type(part), "watches_itself", False):
                continue
            attributes = vars(part)
            self._held += [attributes, *(attributes[n] for n in (*_HOOKS, "_modules", "_parameters", "_buffers"))]
            self._parts += [(part._modules, name, _reference(child)) for name, child in part._modules.items()]
            for held in (part._parameters, part._buffers):
                self._tensors += [(held, name, *_facts(tensor)) for name, tensor in held.items() if tensor is not None]
                self._parts += [(held, name, _nothing) for name, tensor in held.items() if tensor is None]
            self._look_at(attributes, known)
            self.usable &= not part.training and not any(
                attributes[name] for name in (*_HOOKS, "forward") if name in attributes
            )
        self.usable &= not any(reference().is_inference() for _, _, reference, *_ in self._tensors)
        self.usable &= not any(is_shared(reference()) for _, _, reference, *_ in self._tensors)
        self._sizes = _sizes(self._held)
        self._parts, self._plain = _columns(self._parts), _columns(self._plain)
        if not self.usable:
            self._contents = []  # they may hold whoever keeps this

    def _look_at(self, attributes, known):
        for name, value in attributes.items():
            if isinstance(value, _PLAIN):
                self._plain.append((attributes, name, value))
            elif isinstance(value, torch.Tensor):
                self._tensors.append((attributes, name, *_facts(value)))
            elif name not in _OF_EACH:
                self._parts.append((attributes, name, _reference(value)))
                self.usable &= self._look_into(value, known)

    def _look_into(self, value, known):
        """Whether a container, of others perhaps, holds no weights or parts but those that are known."""
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            return id(value) in known
        if not isinstance(value, _CONTAINERS) or any(value is seen for seen, _ in self._contents):
            return True
        elements = _elements(value)
        if len(elements) > MOST_ELEMENTS:
            return True
        if not isinstance(value, tuple):
            self._contents.append((value, elements))
        return all(self._look_into(element, known) for element in elements)

    def is_unchanged(self):
        """Asked in each call, of hundreds of parts: most is compared without a line of Python for each."""
        if _sizes(self._held) != self._sizes:
            return False
        held, names, references = self._parts
        if not _are_same(list(map(dict.get, held, names)), [reference() for reference in references]):
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
        return all(_are_same(_elements(container), elements) for container, elements in self._contents)

    def needs_gradient(self):
        return any(held[name].requires_grad for held, name, *_ in self._tensors if held.get(name) is not None)


def is_shared(tensor):
    """Whether another process may write to it, of which nothing is counted here. On a GPU that cannot be told."""
    return tensor.device.type == "cpu" and tensor.is_shared()


def _sizes(held):
    return list(map(len, held))


def _columns(rows):
    return tuple(zip(*rows, strict=True)) or ((), (), ())


def _is_equal(now, value):
    return type(now) is type(value) and now == value


def _nothing():
    """What a reference to None answers: a part or a weight that is not there may come later."""


def _reference(value):
    """What answers with the value, and keeps it alive only where there is no other way."""
    if value is None:
        return _nothing
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _elements(container):
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def _are_same(now, before):
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _facts(tensor):
    version = None if tensor.is_inference() else tensor._version
    return weakref.ref(tensor), StorageWeakRef(tensor.untyped_storage()), tensor.data_ptr(), version
