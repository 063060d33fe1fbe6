# Ratchet: exactly.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a module is of one very class and nobody watches its calls, so that what is known of the class holds for it.

A subclass is another class. So is one of the same name from elsewhere, since the name is the full one.
"""

from torch.nn.modules import module as module_hooks


def is_exactly(module, name):
    """name: of the class, as "package.module.Class". False with hooks, and with a `forward` of the module's own, which
    adapters and offloading give to single modules.
    """
    cls = type(module)
    if f"{cls.__module__}.{cls.__qualname__}" != name:
        return False
    if module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks:
        return False
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)
