# Ratchet: packed_linear.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Several nn.Linear with the same input as one matrix multiplication, for inference.

    y_i = x W_i^T + b_i    for all i at once:    [y_1, y_2, ...] = x [W_1; W_2; ...]^T + [b_1, b_2, ...]

The layers stay where they are and keep their parameters: their weights become views into one packed storage, so memory
is not doubled, names and checkpoints stay as they were, and whatever is written into a weight is seen here. It refuses
to replace a layer that is more than a plain Linear (hooks, adapters, its own `forward`, quantisation,
parametrisation), and to fuse when a weight or a bias needs a gradient, while the call is traced or under function
transforms, and in compiled code, which could not see weights move: then the layers are called one by one. So they are
after a weight or a bias was replaced or moved by `.data = ...`, because who does that may own the memory it lies in;
the second such call lets go of what was packed: weights of an average may be there for one call. `.to()`,
`load_state_dict` (assign=True too), deepcopy and pickle pack again, but not what processes share, and nothing where
processes work together: who flattens weights to share them out (FSDP) moves them anyway.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from .eager import means_more
from .packing import is_plain, pack


class PackedLinear(nn.Module):
    """`packed(x, *linears)` is `tuple(linear(x) for linear in linears)`.

    x: (..., in_features). Results are (..., out_features_i): slices of one tensor, so their rows are strided.
    Register it after the layers it packs, so that moving or loading a model reaches them first.
    """

    watches_itself = True  # for those who look whether a module has changed: its weights are those of the layers

    def __init__(self, *linears, packs=True):
        super().__init__()
        self._linears = linears  # a tuple, not a ModuleList: they belong to the module that made them
        self._pack(packs)

    def __call__(self, x, *linears):
        # nn.Module's own __call__ would cost more than the check below, and nobody hooks this module
        if not torch.compiler.is_compiling() and (self._is_unchanged(linears) or self._is_followed(linears)):
            return F.linear(x, self._weight, self._bias).split_with_sizes(self._sizes, -1)
        return tuple([linear(x) for linear in linears])

    forward = __call__

    def _is_unchanged(self, linears):
        """The quick answer of nearly every call: same layers, same parameters, same memory, nothing hooked."""
        if torch.is_grad_enabled() or self._weight is None or means_more():
            return False
        for linear, (known, weight, bias, at, size, bias_at, bias_size) in zip(linears, self._places, strict=True):
            own = linear.__dict__
            if linear is not known or type(linear) is not nn.Linear or "forward" in own:
                return False
            held = own["_parameters"]
            if held.get("weight") is not weight or held.get("bias") is not bias:
                return False
            if weight.data_ptr() != at or weight.numel() != size or not weight.is_contiguous():
                return False
            if bias is not None and (bias.data_ptr() != bias_at or bias.numel() != bias_size):
                return False
            if own["_forward_hooks"] or own["_forward_pre_hooks"]:
                return False
        if self._was_left:
            self.__dict__.update(_was_left=False, _linears=linears)
        return True

    def _is_current(self, linears):
        """Whether the packed weights are those of the layers handed in."""
        if self._weight is None:
            return False
        for linear, (known, weight, bias) in zip(linears, self._known, strict=True):
            # the module that calls hands in its layers: one that was replaced or wrapped is seen here
            if linear is not known or linear.weight is not weight or linear.bias is not bias or not is_plain(linear):
                return False
        return not (torch.is_grad_enabled() and self._needs_grad())

    def _is_followed(self, linears):
        """`_is_unchanged`, without its haste. It lets go of what was packed when the layers have left it."""
        if means_more():
            return False
        left = self._weight is not None and (self._is_replaced(linears) or not self._is_aliased())
        if left and self._was_left:
            self._let_go()
        self.__dict__["_was_left"] = left  # nn.Module's setattr is slow
        if left or self._weight is None:
            self.__dict__["_linears"] = linears  # to be packed when the module is moved
        return not left and self._is_current(linears)

    def _follow(self):
        """Pack again where the layers have new parameters or the parameters new memory."""
        if not (self._is_current(self._linears) and self._is_aliased()):
            self._pack()

    def _needs_grad(self):
        return any(weight.requires_grad or (bias is not None and bias.requires_grad) for _, weight, bias in self._known)

    def _is_aliased(self):
        """Whether the parameters still are views into what was packed; `.data = ...` moves them away."""
        aliased = all(
            _is_view(weight, rows) and (bias is None or _is_view(bias, shift))
            for (_, weight, bias), (rows, shift) in zip(self._known, self._parts, strict=True)
        )
        if aliased:  # shared memory moves the whole
            self._remember()
        return aliased

    def _is_replaced(self, linears):
        """Whether no layer handed in is known, or none has its weight. A tensor that is no Parameter is there for one
        call only (torch.func.functional_call).
        """
        for linear, (known, weight, _) in zip(linears, self._known, strict=True):
            held = known._parameters.get("weight")
            if linear is known and (held is weight or not (held is None or isinstance(held, nn.Parameter))):
                return False
        return True

    def _let_go(self):
        self._weight = self._bias = None
        self._was_left = False
        self._known, self._parts, self._places, self._sizes = [], [], [], []

    def _remember(self):
        """What the quick answer compares. Sizes beside addresses: `.data = weight.data[:k]` stays where it was."""
        self._places = [
            (linear, weight, bias, *_place(rows), *_place(shift))
            for (linear, weight, bias), (rows, shift) in zip(self._known, self._parts, strict=True)
        ]

    def _pack(self, packs=True):
        """Make the weights views into one tensor, where that is possible as they are now."""
        self._let_go()
        packed = pack(self._linears) if packs else None
        if packed is not None:
            self._weight, self._bias, self._sizes = packed
            with torch.inference_mode(False), torch.no_grad():
                rows = self._weight.split(self._sizes)
                shifts = [None] * len(rows) if self._bias is None else self._bias.split(self._sizes)
            self._parts = list(zip(rows, shifts, strict=True))
            self._known = [(linear, linear.weight, linear.bias) for linear in self._linears]
            self._remember()

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        with torch.no_grad():
            self._follow()  # the layers come first, so they were moved already
        return self

    def _load_from_state_dict(self, *args, **kwargs):
        super()._load_from_state_dict(*args, **kwargs)
        with torch.no_grad():
            self._follow()  # loaded with assign=True, say

    def __deepcopy__(self, memo):
        new = PackedLinear(*copy.deepcopy(self._linears, memo))
        new.training = self.training
        memo[id(self)] = new
        return new

    def __reduce__(self):
        return _rebuilt, (self._linears,)

    def extra_repr(self):
        sizes = [linear.out_features for linear in self._linears]
        return f"out_features={sizes}, packed={self._weight is not None}"


def _rebuilt(linears):
    """In another process, perhaps, that shares the weights."""
    tensors = [t for linear in linears for t in linear.parameters()]
    return PackedLinear(*linears, packs=not any(t.is_shared() for t in tensors if not t.is_meta))


def _is_view(tensor, part):
    return tensor.device == part.device and tensor.is_set_to(part)


def _place(tensor):
    return (None, None) if tensor is None else (tensor.data_ptr(), tensor.numel())
