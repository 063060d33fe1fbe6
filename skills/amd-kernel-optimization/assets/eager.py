# Ratchet: eager.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What else happens while a call is made: whether it only computes, so that its results may outlive it."""

import torch
from torch import overrides
from torch.autograd import forward_ad
from torch.nn.modules import module as module_hooks
from torch.utils import _device

# asked in each call, and looked up only here: after other work a way through two modules takes as long as the answer
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transform, _autocasts = torch._C._functorch.peek_interpreter_stack, torch._C._is_any_autocast_enabled
_is_tracing = torch._C._is_tracing


def means_more():
    """Whether operations are recorded or counted, or mean something else, at the moment."""
    return _dispatch_modes() > 0 or _transform() is not None or forward_ad._current_level >= 0 or _is_tracing()


def is_plain():
    """Whether operations mean just what they are written as, so that what they compute may outlive the moment."""
    return not (means_more() or _autocasts())


def is_watched():
    """Whether something wants to see each call of a module or a function."""
    if module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks:
        return True
    if not _function_modes():
        return False
    modes = overrides._get_current_function_mode_stack()
    return not all(isinstance(mode, _device.DeviceContext) for mode in modes)  # a default device is one that does not


def is_capturing():
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_exporting():
    """Inside torch.compile, `torch.compiler.is_exporting()` is True in some versions (2.11) without an export."""
    return getattr(torch.compiler, "_is_exporting_flag", False)


def default_devices():
    """(the one that was set, if any, the GPU that is meant where no number is given, if any)."""
    gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    if not _function_modes():
        return None, gpu
    modes = overrides._get_current_function_mode_stack()  # the innermost decides; modes of other kinds change no result
    return next((mode.device for mode in reversed(modes) if isinstance(mode, _device.DeviceContext)), None), gpu
