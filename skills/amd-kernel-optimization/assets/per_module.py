# Ratchet: per_module.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Values that are attached to a module while it lives. Copies do not get them, and they are not pickled."""

import weakref

NAME = "_known_of_this_module"


class PerModule:
    """A value for each module. It may lead back to the module, which the values of a WeakKeyDictionary may not: it lies
    in the module's own attributes, so that both can be collected together.
    """

    def get(self, module):
        known = vars(module).get(NAME)
        return known.values.get(self) if _is_of(known, module) else None

    def __setitem__(self, module, value):
        known = vars(module).get(NAME)
        if not _is_of(known, module):
            known = vars(module)[NAME] = _Known(module)
        known.values[self] = value


class _Known:
    def __init__(self, module):
        values = self.values = {}
        # a value that holds the module's attributes holds itself, and would wait for the garbage collector
        self.owner = weakref.ref(module, lambda _: values.clear())

    def __reduce__(self):
        return type(None), ()  # for pickle, copy and deepcopy


def _is_of(known, module):
    return type(known) is _Known and known.owner() is module
