# Ratchet: grouped_experts.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""A mixture of experts without a search for each expert's rows, for inference.

    y_n = sum over k of weights[n, k] * experts[chosen[n, k]](x_n)

Rows are sorted by their expert once. Where experts are alike and get about as many rows each, their own code runs once
for all of them: each Linear in it is a batched product with the weights of all experts, which become views into one
storage (see packing.py), so that memory is not doubled and whatever is written into a weight is seen. Nothing
else holds that storage: weights that are moved leave nothing behind, the experts are called one by one, and the weights
become views again once they have lain for two calls in memory that nobody else refers to.

On a GPU, in bfloat16, the product takes as many rows of each expert as there are (torch.nn.functional.grouped_mm), and
on CUDA nothing waits for the device to say how many. PyTorch for ROCm may read that on the host (2.10 does by default):
such a call cannot be captured. Where experts are not alike, have hooks or adapters, are trained, or where few rows meet
many experts in another type, each expert that was chosen is called by itself; so they are where the first result of the
code for all is not what each gives by itself. While a program is exported or traced the experts are looped over.
"""

import copy
import threading

import torch
from torch import nn
from torch.nn import functional as F

from .agreement import agree
from .eager import is_capturing, is_exporting, means_more
from .kept import PLAIN, is_shared
from .packing import pack
from .per_module import PerModule
from .processes import work_together
from .watched import _OF_EACH, Watched

WASTE = 3  # times the rows that there are: what is computed at most, when all experts take as many rows as the busiest
ALIGNED = 8  # elements: a grouped product wants rows that begin at multiples of 16 bytes
JAGGED_DEVICES = ("cuda",)  # what PyTorch calls AMD's GPUs as well
_groups = PerModule()  # a _Group of each ModuleList
_sorted = threading.local()  # .rows: where those of each expert end, and whose each is, while a group's code runs


def grouped_experts(experts, x, chosen, weights, all_called=False):
    """experts: ModuleList of modules from (..., d) to (..., o); x: (n, d); chosen, weights: (n, k). Returns (n, o).

    A row whose `chosen` is no expert's number gets nothing from it. `all_called` says that experts without rows are to
    be called too where that matters: where gradients are recorded, those of their weights are zeros then, not None, and
    where processes work together, none waits for another in an expert. Where there are no rows at all, the first expert
    is called with none, to say how wide the result is.
    """
    if is_exporting() or torch.jit.is_tracing():
        return _looped(experts, x, chosen, weights)
    return _grouped(experts, x, chosen, weights, all_called and (torch.is_grad_enabled() or work_together()))


def _looped(experts, x, chosen, weights):
    out = None
    for number, expert in enumerate(experts):
        place, which = torch.where(chosen == number)
        made = expert(x[place]) * weights[place, which, None]
        out = made.new_zeros(x.shape[0], made.shape[-1]) if out is None else out
        out = out.index_add(0, place, made)
    return out.to(x.dtype)


@torch.compiler.disable
def _grouped(experts, x, chosen, weights, calls_all):
    rows, many = chosen.shape
    if not rows and not calls_all:
        with torch.no_grad():
            return experts[0](x).to(x.dtype)  # one of them says how wide it is
    known = (chosen >= 0) & (chosen < len(experts))
    chosen, weights = chosen.clamp(0, len(experts) - 1), torch.where(known, weights, 0)
    expert_of, order = torch.sort(chosen.reshape(-1), stable=True)
    given = x[torch.div(order, many, rounding_mode="floor")]
    group = _group_of(experts) if _may_be_jagged(given) else None
    made = group.jagged(given, expert_of) if group is not None and group.is_aligned() else None
    if made is None:
        made = _by_counts(experts, given, expert_of, calls_all)
    out = torch.empty_like(made).index_copy_(0, order, made)
    return (out.view(rows, many, made.shape[-1]) * weights[:, :, None]).sum(1).to(x.dtype)


def _may_be_jagged(given):
    known = given.device.type in JAGGED_DEVICES and given.dtype == torch.bfloat16 and hasattr(F, "grouped_mm")
    return known and len(given) > 0 and not torch.is_grad_enabled()


def _by_counts(experts, given, expert_of, calls_all):
    """The host asks how many rows each expert has."""
    counts = torch.bincount(expert_of, minlength=len(experts)).tolist()
    most = max(counts)
    if 0 < most * len(experts) <= WASTE * len(given) and not torch.is_grad_enabled():
        group = _group_of(experts)
        made = None if group is None else group.padded(given, expert_of, counts, most)
        if made is not None:
            return made
    return _one_by_one(experts, given, counts, calls_all)


def _one_by_one(experts, given, counts, calls_all=False):
    parts = given.split(counts)
    return torch.cat([expert(part) for expert, part in zip(experts, parts, strict=True) if calls_all or len(part)])


def _group_of(experts):
    """The group of these experts as they are now, None when they have none."""
    if means_more():
        return None
    group = _groups.get(experts)
    if group is not None and group.state.is_unchanged():
        if group.code is None:
            return None
        if group.is_packed():
            group.seen_in = group.packed_in
            return group
        if not group.has_settled():
            return None
    if is_capturing():  # weights would be moved when the graph is replayed, not before
        return None
    group = _groups[experts] = _Group(experts)
    return group if group.code is not None and group.is_packed() else None


class _Group:
    """The code of experts that are alike, for all of them at once; None of others."""

    def __init__(self, experts):
        self.state = Watched(experts, leave_out=nn.Linear)  # those are looked at where they are packed
        self.experts, self.batched, self.proven = tuple(experts), [], set()
        forms = {_form(expert) for expert in experts}
        alike = self.state.only_computes and self.state.is_counted and len(forms) == 1 and None not in forms
        alike = alike and not _belong_to_others(experts)  # packing would take the weights away from them
        self.code = self._copied(self.experts[0], ()) if alike else None
        self.packed_in = self.seen_in = self._storages()

    def _copied(self, module, path):
        """The module with batched products in the place of its Linears."""
        if isinstance(module, nn.Linear):
            self.batched.append(_Batched([_at(expert, path) for expert in self.experts]))
            return self.batched[-1]
        new = copy.copy(module)
        new.__dict__["_modules"] = {n: self._copied(child, (*path, n)) for n, child in module._modules.items()}
        return new

    def is_packed(self):
        """Whether the weights lie where batched products can read them."""
        return all(each.is_packed() for each in self.batched)

    def has_settled(self):
        """Whether the weights have lain, for two calls, in other memory, to which nobody else refers."""
        before, self.seen_in = self.seen_in, self._storages()
        if self.seen_in is None or self.seen_in != before or self.seen_in == self.packed_in:
            return False
        alone = _references(torch.empty(1, device="cpu"))
        return all(_references(weight) == alone for weight in self._weights())

    def _weights(self):
        return [weight for expert in self.experts for weight in expert.parameters()]

    def _storages(self):
        """Numbers of the storages; None where weights are in something else than plain memory."""
        weights = self._weights()
        return [w.untyped_storage()._cdata for w in weights] if set(map(type, weights)) == {nn.Parameter} else None

    def is_aligned(self):
        """Whether grouped products can be made with all weights."""
        shapes = [each.linears[0].weight.shape for each in self.batched]
        same = all(each.linears[0].weight.dtype == torch.bfloat16 for each in self.batched)
        return same and not any(size % ALIGNED for shape in shapes for size in shape)

    def jagged(self, given, expert_of):
        """given: (rows, d), sorted by expert. None where the code is not for all of them at once."""
        if "jagged" in self.proven:
            return self._jagged(given, expert_of)
        if given.is_cuda and is_capturing():
            return None
        counts = torch.bincount(expert_of, minlength=len(self.experts)).tolist()
        return self._tried("jagged", given, counts, lambda: self._jagged(given, expert_of))

    def padded(self, given, expert_of, counts, most):
        """The same, with every expert's rows filled up to the most that one has."""
        if "padded" in self.proven:
            return self._padded(given, expert_of, counts, most)
        return self._tried("padded", given, counts, lambda: self._padded(given, expert_of, counts, most))

    def _tried(self, way, given, counts, make):
        """What a way gives the first time, if it is what the experts give one by one: a batch has one dimension more,
        and there may be more to them than is known here.
        """
        wanted = _one_by_one(self.experts, given, counts)
        try:
            agrees = agree(make(), wanted)
        except Exception:  # noqa: BLE001 - whatever their own code says to a batch
            agrees = False
        if agrees:
            self.proven.add(way)
        else:
            self.code, self.batched = None, []
        return wanted

    def _jagged(self, given, expert_of):
        ends = torch.searchsorted(expert_of, torch.arange(len(self.experts), device=given.device), right=True)
        before, _sorted.rows = getattr(_sorted, "rows", None), (ends.to(torch.int32), expert_of)
        try:
            return self.code(given)
        finally:
            _sorted.rows = before

    def _padded(self, given, expert_of, counts, most):
        counts = torch.tensor(counts, device=given.device)
        place = torch.arange(len(given), device=given.device) - (counts.cumsum(0) - counts)[expert_of]
        padded = given.new_zeros(len(self.experts), most, given.shape[-1])
        padded[expert_of, place] = given
        return self.code(padded)[expert_of, place]


class _Batched(nn.Module):
    """(experts, rows, in) to (experts, rows, out), each with its own Linear; sorted (rows, in) to (rows, out)."""

    def __init__(self, linears):
        super().__init__()
        self.__dict__["linears"] = linears
        if not self.is_packed():
            pack(linears)

    def is_packed(self):
        """Asked in each call, of hundreds of Linears."""
        owns = [linear.__dict__ for linear in self.linears]
        more = [own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own for own in owns]
        if any(more) or set(map(type, self.linears)) != {nn.Linear}:
            return False
        held = [own["_parameters"] for own in owns]
        biases = [each.get("bias") for each in held]
        known = set(map(type, biases)) == {type(None)} or _is_stacked(biases)
        return known and _is_stacked([each.get("weight") for each in held])

    def forward(self, x):
        held, many = self.linears[0]._parameters, len(self.linears)
        first, bias = held["weight"], held.get("bias")
        o, i = first.shape
        weight = first.as_strided((many, i, o), (o * i, 1, i))
        bias = None if bias is None else bias.as_strided((many, 1, o), (o, o, 1))
        if x.dim() == 2:
            ends, expert_of = _sorted.rows
            y = F.grouped_mm(x.contiguous(), weight, offs=ends)
            return y if bias is None else y + bias[expert_of, 0]
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


def _is_stacked(tensors):
    """Whether they are plain weights of one size, one behind the other in one storage."""
    if set(map(type, tensors)) != {nn.Parameter}:
        return False
    first, many = tensors[0], len(tensors)
    size, width, start = first.numel(), first.element_size(), first.data_ptr()
    step = size * width
    if not step or first.storage_offset() * width + step * many > first.untyped_storage().nbytes():
        return False  # the latter are neighbours by chance
    placed = list(map(torch.Tensor.data_ptr, tensors)) == list(range(start, start + step * many, step))
    # `.data = weight.data[:k]` and `.data = weight.data.t()` stay where they were
    return placed and set(map(torch.Tensor.numel, tensors)) == {size} and all(map(torch.Tensor.is_contiguous, tensors))


def _references(tensor):
    """How many there are to its memory."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _form(module):
    """What must be the same in all experts; None for one that has more than Linears and what holds no tensors.

    Attributes that are no plain values must be the same objects: methods of the expert itself never are.
    """
    found = []
    for name, part in module.named_modules():
        linear = type(part) is nn.Linear
        if not linear and (part._parameters or part._buffers):
            return None
        own = {n: v for n, v in vars(part).items() if n not in _OF_EACH or isinstance(v, PLAIN)}
        facts = tuple(sorted((n, repr(v) if isinstance(v, PLAIN) else str(id(v))) for n, v in own.items()))
        shape = (*part.weight.shape, part.weight.dtype, part.bias is None) if linear else ()
        found.append((name, type(part), facts, shape))
    return tuple(found)


def _belong_to_others(experts):
    return work_together() or any(map(is_shared, experts.parameters()))


def _at(module, path):
    for name in path:
        module = module._modules[name]
    return module
