# Ratchet: class_calls.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Let calls of a class's modules go through a function; those of subclasses, which may do more, stay as they are."""

import functools


def through(function, of="__call__"):
    """Class decorator for nn.Module classes: `function(module, plain, args, kwargs)` instead of `plain(*args,
    **kwargs)`, the call as it was, or that of another method `of` it.
    """

    def decorate(cls):
        own = vars(cls).get(of)

        @functools.wraps(getattr(cls, of))
        def call(self, *args, **kwargs):
            # looked up in each call: whoever wants to see all calls replaces nn.Module's
            plain = getattr(super(cls, self), of) if own is None else functools.partial(own, self)
            return function(self, plain, args, kwargs) if type(self) is cls else plain(*args, **kwargs)

        setattr(cls, of, call)
        return cls

    return decorate
