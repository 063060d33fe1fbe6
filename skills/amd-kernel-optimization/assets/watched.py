# Ratchet: watched.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a module still is what it was: its parts, their attributes, hooks, weights and buffers.

Each call looks at each of them, so it is for modules that take much longer. What writes to the memory of a weight
behind torch's back (`p.data.mul_()`, a kernel of one's own) is not seen; what replaces a weight or its data is. Of
attributes that are objects of other classes, such as a configuration, only another object is seen; of classes, of dicts
of weights or parts that are put in the place of others, and of conjugate bits nothing. What was a part or an attribute
is kept until its user looks anew; a weight that was replaced is not.
"""

import itertools
import operator
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .per_module import NAME
from .plain import PLAIN, exactly

MOST_ELEMENTS = 1000  # of a container that is looked into at each call; what is larger is a vocabulary, say
MOST_DEEP = 8
FEW = 8  # parts: of so many, whether each thing is the very one that was there is seen at once

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_EACH = frozenset((*vars(torch.nn.Module()), NAME))  # what every module has, and what is known of it
_CONTAINERS = (list, tuple, set, dict)
_flat = itertools.chain.from_iterable


class Watched:
    """A module as it is now. `leave_out` are classes of parts that somebody else watches.

    `knows_all` says whether every weight is looked at: no list or other container holds weights or parts that the
    module does not know, and torch swaps none for another. `is_counted` says whether each change of one is counted:
    none is an inference tensor or lies in memory that processes share. `only_computes` says whether a call computes
    from what is known, and does no more: nothing in it is hooked or is in training, and no part has a `forward` of its
    own that is not its class's.
    """

    def __init__(self, module, leave_out=()):
        self._attributes, self._slots, self._children, self._empty, self._tensors = [], [], [], [], []
        self._values, self._contents = [], []
        self.knows_all, quiet = True, True
        known = {id(each) for each in (*module.modules(), *module.parameters(), *module.buffers())}
        for part in module.modules():
            if isinstance(part, leave_out) or getattr(type(part), "watches_itself", False):
                continue
            attributes = vars(part)
            self._attributes.append(attributes)
            self._slots += [part._modules, part._parameters, part._buffers]
            self._children += [(part._modules, name, child) for name, child in part._modules.items()]
            for held in (part._parameters, part._buffers):
                self._tensors += [(held, name, *_facts(held, name)) for name in held if held[name] is not None]
                self._empty += [(held, name) for name, tensor in held.items() if tensor is None]
            self._look_at(attributes, known)
            own = any(attributes[name] for name in (*_HOOKS, "forward") if name in attributes)
            quiet = quiet and not part.training and not own
        self.knows_all = self.knows_all and not any(_may_be_swapped(held[name]) for held, name, *_ in self._tensors)
        self.only_computes = self.knows_all and quiet
        self._sizes, self._names = self._sizes_now(), _names(self._slots)
        self._children, self._values = _columns(self._children, 3), _columns(self._values, 3)
        held, names, references, *facts = _columns(self._tensors, 6)
        self._places, self._references = (held, names), references
        self._storages, self._addresses, self._versions = map(list, facts)
        self._layouts = _layouts(self.tensors())
        self.is_counted = not any(each.is_inference() or is_shared(each) for each in self.tensors())
        self._dicts, self._held = [*self._attributes, *self._slots], [*self._attributes, *self._slots[::3]]
        self._last_seen = self._seen()

    def _look_at(self, attributes, known):
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor):
                self._tensors.append((attributes, name, *_facts(attributes, name)))
            elif name in _OF_EACH and not isinstance(value, PLAIN):
                continue
            elif isinstance(value, _CONTAINERS):
                self._contents.append((attributes, name, _looks(value)))
                self.knows_all &= _holds_only(value, known)
            else:
                self._values.append((attributes, name, value))

    def is_unchanged(self):
        """Asked in each call, of hundreds of parts: most is compared without a line of Python for each."""
        return self.holds_as_before() and self._has_its_attributes()

    def lies_as_before(self):
        """Whether each part and each tensor is in its place, and in the same memory; what is new beside them is not
        seen. The quickest of the questions: it may be asked before a device begins, and `is_set_as_before` while it
        works.
        """
        held, names, children = self._children
        if not all(map(operator.is_, map(dict.get, held, names), children)):
            return False
        tensors = list(map(dict.get, *self._places))
        if not all(map(operator.is_, tensors, [reference() for reference in self._references])):
            return False
        # of one that is gone, nothing refers to nothing: the list is shorter
        return [tensor.data_ptr() for tensor in tensors if tensor is not None] == self._addresses

    def is_set_as_before(self):
        """Hooks, attributes, places that were empty, and how each tensor is laid out in its memory."""
        tensors = self.tensors()
        if self._is_untouched():
            return _layouts(tensors) == self._layouts
        if not (self._has_its_attributes() and self._is_laid_out_as_before(tensors)):
            return False
        self._last_seen = self._seen()
        return True

    def holds_as_before(self):
        """Whether parts and tensors are those that were there, laid out as they were, and none was written to."""
        if not self.lies_as_before():
            return False
        tensors = self.tensors()
        if list(map(_version, tensors)) != self._versions or not self._is_laid_out_as_before(tensors):
            return False
        # a weak reference keeps the storage's own address from being used again, but not that of its data
        return [tensor.untyped_storage()._cdata for tensor in tensors] == [storage.cdata for storage in self._storages]

    def _is_laid_out_as_before(self, tensors):
        if _names(self._slots) != self._names or not self._is_empty_as_before():
            return False
        return _layouts(tensors) == self._layouts

    def _seen(self):
        """(names in every dict of every part, what is there but for weights, the places of hooks); None where there are
        many parts, hooks or containers, or a tensor would be kept.
        """
        if len(self._attributes) > FEW or self._contents:
            return None
        values = list(_flat(map(dict.values, self._held)))
        hooks = self._places_of_hooks()
        if any(hooks) or any(isinstance(value, torch.Tensor) for value in values):
            return None
        return list(_flat(self._dicts)), values, hooks

    def _is_untouched(self):
        """Whether the very things are in their places; it may say no where they are others that mean the same."""
        if self._last_seen is None:
            return False
        names, values, hooks = self._last_seen
        if any(hooks) or list(_flat(self._dicts)) != names:
            return False
        if not all(map(operator.is_, _flat(map(dict.values, self._held)), values)):
            return False
        return self._is_empty_as_before()

    def _has_its_attributes(self):
        if self._sizes_now() != self._sizes:
            return False
        held, names, values = self._values
        now = list(map(dict.get, held, names, held))
        if not all(map(operator.is_, now, values)) and not all(map(_is_equal, now, values)):
            return False
        return all(_looks_like(held.get(name), looks) for held, name, looks in self._contents)

    def _is_empty_as_before(self):
        return not self._empty or all(held.get(name) is None for held, name in self._empty)

    def _sizes_now(self):
        """(attributes of each part, hooks of each kind of each part)"""
        return [len(each) - (NAME in each) for each in self._attributes], list(map(len, self._places_of_hooks()))

    def _places_of_hooks(self):
        return list(_flat(map(operator.itemgetter(*_HOOKS), self._attributes)))

    def tensors(self):
        """Those that are in the places of the known ones."""
        return [tensor for tensor in map(dict.get, *self._places) if tensor is not None]

    def needs_gradient(self):
        return any(tensor.requires_grad for tensor in self.tensors())


def is_shared(tensor):
    """Whether another process may write to it, of which nothing is counted here. On a GPU that cannot be told."""
    return tensor.device.type == "cpu" and tensor.is_shared()


def _names(slots):
    return list(map(tuple, slots))


def _columns(rows, number):
    return tuple(zip(*rows, strict=True)) or ((),) * number


def _is_equal(now, value):
    return now is value or (isinstance(now, PLAIN) and exactly(now) == exactly(value))


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


def _looks(value, depth=0):
    """What answers with the value, or of a container (its class, that of each element): it is not kept alive."""
    if not isinstance(value, _CONTAINERS) or len(value) > MOST_ELEMENTS or depth > MOST_DEEP:
        return _reference(value)
    return type(value), [_looks(element, depth + 1) for element in _elements(value)]


def _looks_like(now, looks):
    if isinstance(looks, tuple):
        kind, elements = looks
        now_held = _elements(now) if type(now) is kind else ()
        return type(now) is kind and len(now_held) == len(elements) and all(map(_looks_like, now_held, elements))
    before = _referred(looks)
    return now is before or (isinstance(now, PLAIN) and _is_equal(now, before))


def _holds_only(value, known, depth=0):
    """Whether a container, of others perhaps, holds no weights or parts but those that are known."""
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return id(value) in known
    if not isinstance(value, _CONTAINERS):
        return True
    if len(value) > MOST_ELEMENTS:
        return not any(isinstance(element, (torch.Tensor, torch.nn.Module)) for element in _elements(value))
    return depth <= MOST_DEEP and all(_holds_only(element, known, depth + 1) for element in _elements(value))


def _referred(reference):
    """The value; something that is nowhere else when it is gone, because None may be in its place."""
    value = reference()
    return reference if value is None and reference is not _nothing else value


def _elements(container):
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def _facts(held, name):
    tensor = held[name]
    reference = _by_number(held, name) if _may_be_swapped(tensor) else weakref.ref(tensor)
    return reference, StorageWeakRef(tensor.untyped_storage()), tensor.data_ptr(), _version(tensor)


def _may_be_swapped(tensor):
    """Whether torch puts another tensor in its place where others write into it: it refuses what is weakly referred."""
    return torch.__future__.get_swap_module_params_on_conversion() or is_traceable_wrapper_subclass(tensor)


def _by_number(held, name):
    """What answers with the tensor while it is there, as a reference would, but for one that got its number."""
    number = id(held[name])
    return lambda: now if id(now := held.get(name)) == number else None


def _version(tensor):
    return None if tensor.is_inference() else tensor._version


def _layouts(tensors):
    return [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors]
