"""Find RMS normalisation by what a module computes, never by its name.

    y = w * x / sqrt(mean(x^2) + eps)         with w, or 1 + w, applied before or after rounding to the input's dtype

It looks only at modules without children that hold one vector of the last dimension's size. A copy with weights drawn
at random is asked, on inputs small enough for eps to matter; what does not agree is not reported.
"""

from __future__ import annotations

import copy

import torch

from .observe_where import MAX_PATHS

_EPS = (1e-5, 1e-6, 1e-8, 1e-12)
_ORDERS = ("cast_then_weight", "weight_then_cast")


class NormProbe:
    """A context manager that remembers which modules could be one and with what they were called."""

    def __init__(self, where):
        self.where, self._hook = where, None
        self._seen = {}  # class -> (module, shape, dtype, device)
        self._modules = {}

    def __enter__(self):
        self._hook = torch.nn.modules.module.register_module_forward_hook(self._look)
        return self

    def __exit__(self, *error):
        self._hook.remove()

    def _look(self, module, args, out):
        if len(args) != 1 or not isinstance(args[0], torch.Tensor) or not isinstance(out, torch.Tensor):
            return
        weight, x = _weight(module), args[0]
        if weight is None or not x.is_floating_point() or x.shape != out.shape or x.shape[-1:] != weight.shape:
            return
        self._seen.setdefault(type(module), (module, tuple(x.shape), x.dtype, x.device))
        self._modules.setdefault(type(module), {})[id(module)] = module

    def found(self, times):
        rows = []
        for cls, (module, shape, dtype, device) in self._seen.items():
            formula = identify(module, dtype, device)
            if formula is None:
                continue
            modules = list(self._modules[cls].values())
            rows.append({
                **self.where.describe_class(cls), **formula,
                "paths": [self.where.path(m) for m in modules[:MAX_PATHS]], "count": len(modules),
                "shape": list(shape), "dtype": str(dtype).removeprefix("torch."), "share": times.share(modules),
            })  # fmt: skip
        return rows


def identify(module, dtype, device):
    """{"weight", "eps", "eps_value", "offset", "order"} of an RMS norm, else None. `eps` is an attribute or empty."""
    clone = copy.deepcopy(module)
    name = next(n for n, _ in clone.named_parameters())
    size = getattr(clone, name).shape[0]
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(size, generator=generator).to(device, dtype) + 0.5
    # rows of very different sizes: on the small ones eps decides
    x = torch.randn(8, size, generator=generator) * torch.logspace(-4, 1, 8)[:, None]
    x = x.to(device, dtype)
    with torch.no_grad():
        getattr(clone, name).data = weight
        for eps_name, eps in _eps_candidates(clone):
            for offset in (0.0, 1.0):
                best = _best_order(clone(x), x, weight, eps, offset)
                if best:
                    return {"weight": name, "eps": eps_name, "eps_value": eps, "offset": offset, "order": best}
    return None


def _best_order(out, x, weight, eps, offset):
    if out.dtype != x.dtype:
        return None
    normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    if x.dtype == torch.float64:
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    orders = {
        "cast_then_weight": (offset + weight) * normed.to(x.dtype),
        "weight_then_cast": ((offset + weight.float()) * normed).to(x.dtype),
    }
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-6}.get(x.dtype, 2e-2)
    errors = {order: _error(out, value) for order, value in orders.items()}
    order = min(_ORDERS, key=lambda o: errors[o])
    return order if errors[order] <= tolerance else None


def _error(out, expected):
    """Largest error relative to each row's largest value."""
    scale = expected.float().abs().amax(-1, keepdim=True).clamp_min(1e-30)
    return ((out.float() - expected.float()).abs() / scale).max().item()


def _eps_candidates(module):
    named = [(n, v) for n, v in vars(module).items() if isinstance(v, float) and 0 < v < 1e-2]
    return named + [("", eps) for eps in _EPS]


def _weight(module):
    if next(module.children(), None) is not None or len(list(module.buffers(recurse=False))) > 0:
        return None
    parameters = list(module.parameters(recurse=False))
    return parameters[0] if len(parameters) == 1 and parameters[0].dim() == 1 else None
