"""What goes back from the results of a call, small enough to be saved for each parameter."""

from __future__ import annotations

import torch

NUMBERS = 64  # of a parameter's gradient, each a sum of many
FEW = 16  # numbers that are told together with those of others: of one alone, the error is chance


def back(outs, given, parameters):
    """Gradients of a sum of all numbers of `outs`: {"arguments": [of each of `given`, zeros where none flows],
    "parameters": {name: `NUMBERS` sums of it, or itself where it has no more}, "few": numbers of the smallest ones}.
    """
    of = [*given, *parameters.values()]
    sums = [_weighed(out).sum().real for out in outs if out.requires_grad]
    found = torch.autograd.grad(sums, of, allow_unused=True) if sums else [None] * len(of)
    found = [torch.zeros_like(x) if grad is None else grad for x, grad in zip(of, found, strict=True)]
    named = dict(zip(parameters, found[len(given) :], strict=True))
    few = [grad.flatten() for grad in named.values() if grad.numel() < FEW]
    return {
        "arguments": found[: len(given)],
        "parameters": {name: _sums(grad) for name, grad in named.items() if grad.numel() >= FEW},
        "few": [
            torch.cat([each for each in few if each.dtype == dtype]) for dtype in dict.fromkeys(g.dtype for g in few)
        ],
    }


def _weighed(tensor):
    """Its numbers in a row, each times another factor, the same in every process."""
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32)).flatten()
    return wide * torch.arange(wide.numel(), device=wide.device).to(wide.real.dtype).cos()


def _sums(grad):
    if grad.numel() <= NUMBERS:
        return grad
    weighed = torch.nn.functional.pad(_weighed(grad), (0, -grad.numel() % NUMBERS))
    return weighed.reshape(NUMBERS, -1).sum(1).to(grad.dtype)
