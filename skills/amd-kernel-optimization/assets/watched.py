# Ratchet: watched.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a module still is what it was: its parts, their attributes, hooks, weights and buffers.

Each call looks at each of them, so it is for modules that take much longer. What writes to the memory of a weight
uncounted (`p.data.mul_()`, NumPy) is seen by sampled.py alone; what replaces a weight or its data is seen here. Of
attributes that are objects of other classes, such as a configuration, only another object is seen; of classes, of dicts
of weights or parts that are put in the place of others, and of conjugate bits nothing. What was a part or an attribute,
or in a list that was one, is kept until its user looks again; a weight that was replaced is not.
"""

import functools
import inspect
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .kept import PLAIN, exactly, is_shared, version
from .per_module import NAME

MOST_ELEMENTS = 1000  # of a container that is looked into at each call; what is larger is a vocabulary, say
MOST_DEEP = 8

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_EACH = frozenset((*vars(torch.nn.Module()), NAME))  # what every module has, and what is known of it
_CONTAINERS = (list, tuple, set, dict)
_KNOWN = (torch.Tensor, torch.nn.Module)


class Watched:
    """A module as it is now. `leave_out` are classes of parts that someone else watches.

    `knows_all` says whether every weight is looked at: no list or other container holds weights or parts that the
    module does not know, and torch swaps none for another. `is_counted` says whether each change of one is counted:
    none is an inference tensor or lies in memory that processes share. `only_computes` says whether a call computes
    from what is known, and does no more: nothing in it is hooked or is in training, but for parts that have none and
    whose code never asks for that, and no part has a `forward` of its own that is not its class's.
    """

    def __init__(self, module, leave_out=()):
        self._parts, self._slots, self._children, self._tensors, self._contents = [], [], [], [], []
        self.knows_all, quiet = True, True
        known = {id(each) for each in (*module.modules(), *module.parameters(), *module.buffers())}
        for part in module.modules():
            if isinstance(part, leave_out) or getattr(type(part), "watches_itself", False):
                continue
            attributes = vars(part)
            self._children += [(part._modules, name, child) for name, child in part._modules.items()]
            for held in (part._modules, part._parameters, part._buffers):
                self._slots.append((held, tuple(held), [name for name in held if held[name] is None]))
            for held in (part._parameters, part._buffers):
                self._tensors += [(held, name, *_facts(held, name)) for name in held if held[name] is not None]
            self._parts.append((attributes, _size(attributes), self._look_at(attributes, known), _hooks(attributes)))
            own = any(attributes[name] for name in (*_HOOKS, "forward") if name in attributes)
            quiet = quiet and not own and not (part.training and (part._modules or _minds_training(type(part))))
        self.knows_all = self.knows_all and not any(_may_be_swapped(held[name]) for held, name, *_ in self._tensors)
        self.only_computes = self.knows_all and quiet
        self.is_counted = not any(each.is_inference() or is_shared(each) for each in self.tensors())

    def _look_at(self, attributes, known):
        """[(name, value)] of what is compared as it is."""
        values = []
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor):
                self._tensors.append((attributes, name, *_facts(attributes, name)))
            elif name in _OF_EACH and not isinstance(value, PLAIN):
                continue
            elif isinstance(value, _CONTAINERS) and not _is_plain(value):
                leaves = []
                key = _key(value, leaves)
                self.knows_all &= not any(_is_more(leaf, known) for leaf in leaves)
                others = [leaf for leaf in leaves if not isinstance(leaf, _KNOWN)]
                self._contents.append((attributes, name, key, others))
            else:
                values.append((name, value))
        return values

    def is_unchanged(self):
        """Asked in each call, of hundreds of parts: in plain loops, since iterators written in C took longer."""
        return self.holds_as_before() and self._has_its_attributes()

    def lies_as_before(self):
        """Whether each part and each tensor is in its place, and in the same memory; what is new beside them is not
        seen. The quickest of the questions: it may be asked before a device begins, and `is_set_as_before` while it
        works.
        """
        for held, name, child in self._children:
            if held.get(name) is not child:
                return False
        for held, name, _, reference, address, *_ in self._tensors:
            tensor = held.get(name)
            if tensor is None or tensor is not reference() or tensor.data_ptr() != address:
                return False
        return True

    def is_set_as_before(self):
        """Hooks, attributes, places that were empty, and how each tensor is laid out in its memory."""
        return self._has_its_attributes() and self._is_laid_out_as_before()

    def holds_as_before(self):
        """Whether parts and tensors are those that were there, laid out as they were, and none was written to."""
        if not (self.lies_as_before() and self._is_laid_out_as_before()):
            return False
        for held, name, _, _, _, before, storage in self._tensors:
            tensor = held[name]
            # a weak reference keeps the storage's own address from being used again, but not that of its data
            if version(tensor) != before or tensor.untyped_storage()._cdata != storage.cdata:
                return False
        return True

    def _is_laid_out_as_before(self):
        for slot, names, empty in self._slots:
            if len(slot) != len(names) or (len(names) > 1 and tuple(slot) != names):
                return False
            for name in empty:
                if slot.get(name, slot) is not None:
                    return False
        for held, name, layout, *_ in self._tensors:
            tensor = held.get(name)
            if tensor is None or (tensor.shape, tensor.stride(), tensor.dtype) != layout:
                return False
        return True

    def _has_its_attributes(self):
        for attributes, size, values, hooks in self._parts:
            if len(attributes) != size and _size(attributes) != size:
                return False
            for name, value in values:
                now = attributes.get(name, attributes)
                if now is not value and _key(now, []) != _key(value, []):
                    return False
            forward = attributes["_forward_hooks"] or attributes["_forward_pre_hooks"]
            backward = attributes["_backward_hooks"] or attributes["_backward_pre_hooks"]
            if (forward or backward or hooks) and _hooks(attributes) != hooks:
                return False
        return all(_key(held.get(name), []) == key for held, name, key, _ in self._contents)

    def tensors(self):
        """Those that are in the places of the known ones."""
        found = [held.get(name) for held, name, *_ in self._tensors]
        return [tensor for tensor in found if tensor is not None]

    def needs_gradient(self):
        return any(tensor.requires_grad for tensor in self.tensors())


@functools.cache
def _minds_training(cls):
    """Whether its code, but for that of every module, asks whether it is in training."""
    own = [each for each in cls.__mro__ if each not in (object, torch.nn.Module)]
    return any(_mentions_training(value) for each in own for value in vars(each).values())


def _mentions_training(value):
    function = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))
    code = getattr(function, "__code__", function)
    if not inspect.iscode(code):
        return callable(value) and not isinstance(value, type)  # what cannot be read may
    return "training" in (*code.co_names, *code.co_consts) or any(map(_mentions_training, code.co_consts))


def _size(attributes):
    return len(attributes) - (NAME in attributes)


def _hooks(attributes):
    """How many of each kind; nothing where there are none."""
    return tuple(map(len, map(attributes.get, _HOOKS))) if any(map(attributes.get, _HOOKS)) else ()


def _is_plain(value):
    return isinstance(value, tuple) and all(isinstance(each, PLAIN) for each in value)


def _key(value, leaves, depth=0):
    """Plain values as such, a container by its class and what is in it, anything else by its number. Adds those to the
    leaves, which must live as long as the key.
    """
    if isinstance(value, PLAIN):
        return exactly(value)
    if isinstance(value, _CONTAINERS) and len(value) <= MOST_ELEMENTS and depth <= MOST_DEEP:
        return type(value), [_key(element, leaves, depth + 1) for element in _elements(value)]
    leaves.append(value)
    return id(value)


def _is_more(leaf, known):
    """Whether it is a weight or a part that is not known, or a container that may hold some."""
    if isinstance(leaf, _CONTAINERS):
        return len(leaf) <= MOST_ELEMENTS or any(isinstance(each, _KNOWN) for each in _elements(leaf))
    return isinstance(leaf, _KNOWN) and id(leaf) not in known


def _elements(container):
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def _facts(held, name):
    tensor = held[name]
    reference = _by_number(held, name) if _may_be_swapped(tensor) else weakref.ref(tensor)
    layout, storage = (tensor.shape, tensor.stride(), tensor.dtype), StorageWeakRef(tensor.untyped_storage())
    return layout, reference, tensor.data_ptr(), version(tensor), storage


def _may_be_swapped(tensor):
    """Whether torch puts another tensor in its place where others write into it: it refuses what is weakly referred."""
    return torch.__future__.get_swap_module_params_on_conversion() or is_traceable_wrapper_subclass(tensor)


def _by_number(held, name):
    """What answers with the tensor while it is there, as a reference would, but for one that got its number."""
    number = id(held[name])
    return lambda: now if id(now := held.get(name)) == number else None
