# Ratchet: eager.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Whether a call, outside of compiled code, does no more than compute: whether its results may outlive it."""

import torch
from torch import overrides
from torch.nn.modules import module as module_hooks
from torch.utils import _device


def means_more():
    """Whether operations are recorded or counted, or mean something else, at the moment."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def is_plain():
    """Whether operations mean just what they are written as, so that what they compute may outlive the moment."""
    return not (means_more() or torch._C._is_any_autocast_enabled())


def is_watched():
    """Whether something wants to see each call of a module or a function."""
    if module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks:
        return True
    if not torch._C._len_torch_function_stack():
        return False
    modes = overrides._get_current_function_mode_stack()
    return not all(isinstance(mode, _device.DeviceContext) for mode in modes)  # a default device is one that does not


def is_capturing():
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def default_devices():
    """(the one that was set, if any, the GPU that is meant where no number is given, if any)."""
    gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    if not torch._C._len_torch_function_stack():
        return None, gpu
    modes = overrides._get_current_function_mode_stack()  # the innermost decides; modes of other kinds change no result
    return next((mode.device for mode in reversed(modes) if isinstance(mode, _device.DeviceContext)), None), gpu
