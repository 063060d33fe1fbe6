"""Other weights of the same model: another checkpoint, and changes of some numbers as programs make them.

Random initialisation is a special point: a branch that begins at zero, or a scale of 1e-6, may be left out there, and
in no checkpoint. What is drawn here matters, as far as that can be measured.
"""

from __future__ import annotations

import copy
import math
import random

import torch

LEAST_1D = 0.1  # of a vector that begins at zero
TINY = 2e-4  # of the usual size of such a tensor: what begins so far down is meant to grow
OF_NUMPY = {torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128}
OF_NUMPY |= {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
ENLARGED = 8.0
TURNED = 8  # one gain of so many
FEW, MANY = 64, 4  # one number of so many changes
UNCOUNTED = ("data", "numpy")  # writes that no version of a tensor counts
LEAST_EFFECT, RAISED_TO = 1e-3, 1e-2  # of the size of a result


def another(state, named_buffers=frozenset(), anew=True, turned=False):
    """A state dict of the same names: floating-point numbers moved along and scaled, integers in another order.

    `anew`: what is tiny is made larger, and what is zero is drawn, too, but for the zeros of a buffer that holds
    others, as a mask does. Infinities keep their places always. `turned`: of a vector of parameters that all have one
    sign, as gains begin, some get the other.
    """
    return {
        name: _another(value.detach().clone(), name in named_buffers, anew, turned) for name, value in state.items()
    }


def _another(value, is_buffer, anew, turned):
    if value.is_complex() and not is_buffer:
        return torch.view_as_complex(_another(torch.view_as_real(value), is_buffer, anew, False))
    if not value.numel() or value.is_complex() or value.dtype == torch.bool:
        return value
    if not value.is_floating_point():
        return _reordered(value) if anew and not _is_a_row_of_numbers(value) else value
    zeros = value == 0
    if not (zeros | value.isinf()).any():
        value = _reordered(value)
    noise = 0.75 + 0.5 * torch.rand(value.shape, device=value.device)
    found = value.float() * noise
    if anew and found.abs().max() < TINY * usual_size(value):
        found = found * (usual_size(value) / found.abs().max().clamp(min=1e-30))
    if anew and zeros.any() and not value.isinf().any() and (zeros.all() or not is_buffer):
        size = float(found[~zeros].square().mean().sqrt()) if not zeros.all() else usual_size(value)
        found = torch.where(zeros, size * torch.randn(value.shape, device=value.device), found)
    if turned and not is_buffer and value.dim() == 1 and len(value) >= TURNED and bool((value > 0).all()):
        found[::TURNED] *= -1
    return found.to(value.dtype)


def _reordered(value):
    return value.flatten().roll(int(torch.randint(value.numel(), ()))).reshape(value.shape)


def _is_a_row_of_numbers(value):
    """Positions, which no checkpoint has in another order."""
    flat = value.flatten()
    return flat.numel() < 2 or bool((flat[1:] >= flat[:-1]).all())


def usual_size(value):
    """Of one number of such a tensor, about: what keeps the size of what goes through it."""
    return LEAST_1D if value.dim() < 2 else 1 / math.sqrt(value.numel() / len(value))


def effects(module, call):
    """{name: how far a result moves, as a share of its size, where this parameter moves by its own size}; empty where
    no gradient flows. `call` answers with tensors, and may fail where gradients are recorded. Leaves marks of gradients
    in what the model keeps.
    """
    parameters = {name: each for name, each in module.named_parameters() if each.is_floating_point()}
    for each in parameters.values():
        each.requires_grad_(True)
    with torch.enable_grad():
        outs = [out for out in call() if out.requires_grad]
        total = sum((out.float() * torch.randn_like(out, dtype=torch.float32)).sum() for out in outs)
    if not outs or not parameters:
        return {}
    gradients = torch.autograd.grad(total, [*parameters.values()], allow_unused=True)
    with torch.no_grad():
        size = math.sqrt(sum(float(out.float().square().sum()) for out in outs)) or 1.0
        return {
            name: 0.0 if gradient is None else float((gradient.float() * parameters[name].float()).norm()) / size
            for name, gradient in zip(parameters, gradients, strict=True)
        }


def strengthened(state, measured):
    """A state dict in which what has next to no effect has more, up to the usual size of such tensors."""
    found = dict(state)
    for name, effect in measured.items():
        value = state[name].detach()
        if 0 < effect < LEAST_EFFECT:
            size = float(value.float().square().mean().sqrt())
            factor = min(RAISED_TO / effect, usual_size(value) / size if size else 1.0)
            found[name] = (value.float() * max(1.0, factor)).to(value.dtype)
    return found


def change_some(module, means, seed):
    """Change a quarter of all numbers, or of one row where nothing counts the writes, in about half of all parameters
    and saved buffers; which ones follows from `seed` and their names alone, and the other half from one that differs in
    the last bit. `means` is one of `MEANS`.
    """
    chosen, changes, seen, state = random.Random(seed >> 1), {}, set(), module.state_dict()
    held = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    for name in sorted(state):
        tensor = held.get(name)
        is_chosen, at = chosen.randrange(2) == seed & 1, chosen.randrange(1 << 31)
        if tensor is not None and id(tensor) not in seen and tensor.numel() and _may_change(tensor):
            seen.add(id(tensor))
            if is_chosen:
                changes[name] = tensor, _change(tensor.detach(), means in UNCOUNTED, at)
    MEANS[means](module, state, changes)


def _may_change(tensor):
    """Numbers that may change places: of integers those that are in no order, as positions are."""
    if tensor.is_floating_point() or tensor.is_complex():
        return True
    return tensor.dtype != torch.bool and tensor.dim() > 0 and not _is_a_row_of_numbers(tensor.detach())


def _change(tensor, is_few, seed):
    """What does it to a tensor of this shape, or to an array that shares its memory: numbers in every so many-th place
    change places, so that what goes through them stays as large, and errs as much, as before.
    """
    length = tensor.shape[-1] if tensor.dim() else 1
    of_a_row = is_few and tensor.dim() > 1 and tensor.numel() >= 2 * MANY * len(tensor)
    step = FEW if is_few and not of_a_row and length >= 2 * FEW else min(MANY, length)

    def change(values):
        if not tensor.dim():
            values *= 0.5
            return
        places = (..., slice(seed % step, None, step))
        if of_a_row:
            places = seed % len(values), *places
        some = values[places]
        if isinstance(some, torch.Tensor):
            values[places] = some.flip(tuple(range(some.dim())))
        else:
            values[places] = some[(slice(None, None, -1),) * some.ndim].copy()

    return change


def _uncounted(module, state, changes):
    for tensor, change in changes.values():
        change(tensor.data)


def _by_numpy(module, state, changes):
    for tensor, change in changes.values():
        is_known = tensor.device.type == "cpu" and tensor.dtype in OF_NUMPY
        change(tensor.detach().numpy() if is_known else tensor.data)


def _as_a_step(module, state, changes):
    """As an optimizer writes."""
    with torch.no_grad():
        for tensor, change in changes.values():
            change(tensor)


def _other_memory(module, state, changes):
    for tensor, change in changes.values():
        tensor.data = tensor.data.clone()
        change(tensor.data)


def replace_some(module):
    """Put others in the place of about half of the innermost modules, as adapters do."""
    names = [name for name, each in module.named_modules() if name and not [*each.children()] and [*each.parameters()]]
    for name in names[::2]:
        other = copy.deepcopy(module.get_submodule(name))
        for each in other.parameters():
            if each.is_floating_point():
                each.data.mul_(0.875)
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, other)


def shake(tensors, seed=0):
    """Move all numbers of more than 16 bits by their last bit, or not, as rounding may."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in tensors:
            if each.is_floating_point() and each.element_size() > 2:
                ways = torch.randint(-1, 2, each.shape, generator=generator).to(each.device)
                each.copy_(each * (1 + torch.finfo(each.dtype).eps * ways))


def _enlarged(module, state, changes):
    """All matrices, by as much as training may: what is squared in between, as scores are, 64 times."""
    with torch.no_grad():
        for each in module.parameters():
            if each.is_floating_point() and each.dim() > 1:
                each.mul_(ENLARGED)


def _other_tensors(module, state, changes):
    """In the place of all parameters."""
    state = {name: value.detach().clone() for name, value in state.items()}
    for name, (_, change) in changes.items():
        change(state[name])
    module.load_state_dict(state, strict=True, assign=True)


MEANS = {
    "data": _uncounted,
    "numpy": _by_numpy,
    "step": _as_a_step,
    "memory": _other_memory,
    "assign": _other_tensors,
    "enlarged": _enlarged,
}
