# Ratchet: exactly.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a module is of one exact class and nothing watches its calls, so that what is known of the class holds."""

from torch.nn.modules import module as module_hooks


def is_exactly(module, name):
    """name: of the class, as "package.module.Class". A subclass is another class."""
    cls = type(module)
    return f"{cls.__module__}.{cls.__qualname__}" == name and is_unwatched(module)


def is_unwatched(module):
    """False with hooks, and with its own `forward`, which adapters and offloading give to single modules."""
    if module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks:
        return False
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)
