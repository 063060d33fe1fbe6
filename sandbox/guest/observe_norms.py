"""Find normalisation by what a module computes, never by its name.

    rms      y = w * x / sqrt(mean(x^2) + eps)     with w, or 1 + w, before or after rounding to the input's dtype
    layer    y = w * (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) + b      with or without b

It looks only at modules without children that hold one or two vectors of the last dimension's size. A copy with weights
drawn at random is asked, on inputs small enough for eps to matter; what does not agree is not reported. Nor is a class
whose `forward` reads anything else of the module, as a flag, or one that a function makes again each time: with another
value of that it may compute something else.
"""

from __future__ import annotations

import copy
import inspect
import itertools

import torch

from .module_calls import ModuleCalls
from .observe_where import MAX_PATHS

_EPS = (1e-5, 1e-6, 1e-8, 1e-12)


class NormProbe(ModuleCalls):
    """Remembers which modules could be one and with what they were called."""

    def __init__(self, where):
        self.where = where
        self._seen = {}  # class -> (module, shape, dtype, device)
        self._modules, self._formulas = {}, {}

    def after(self, module, args, kwargs, out):
        x = _only(module, args, kwargs)
        if x is None or not isinstance(out, torch.Tensor) or x.is_nested or out.is_nested:
            return
        size = _size(module)
        if size is None or not x.is_floating_point() or x.shape != out.shape or x.shape[-1:] != size:
            return
        self._seen.setdefault(type(module), (module, tuple(x.shape), x.dtype, x.device))
        self._modules.setdefault(type(module), {})[id(module)] = module

    def formula(self, cls):
        """What modules of a class compute, see `identify`; None for what is no norm or was not called."""
        if cls in self._seen and cls not in self._formulas and "<locals>" not in cls.__qualname__:
            module, _, dtype, device = self._seen[cls]
            self._formulas[cls] = identify(module, dtype, device)
        return self._formulas.get(cls)

    def found(self, times):
        rows = []
        for cls, (_, shape, _, _) in self._seen.items():
            formula = self.formula(cls)
            if formula is None or cls.__module__.partition(".")[0] == "torch":
                continue  # torch has kernels for its own
            modules = list(self._modules[cls].values())
            rows.append(
                {
                    **self.where.describe_class(cls),
                    **formula,
                    "paths": [self.where.path(m) for m in modules[:MAX_PATHS]],
                    "count": len(modules),
                    "shape": list(shape),
                    "share": times.share(modules),
                }
            )
        return rows


def identify(module, dtype, device):
    """{"kind", "weight", "bias", "eps", "eps_value", "offset", "order", "dtype"} of a norm, else None.

    `eps` is an attribute, or empty; so is `bias`.
    """
    try:
        return _identify(copy.deepcopy(module), dtype, device)
    except Exception:  # whatever a module raises for being copied, looked at, or given what it was not made for
        return None


def _identify(clone, dtype, device):
    names = [name for name, _ in clone.named_parameters()]
    size = getattr(clone, names[0]).shape[0]
    generator = torch.Generator().manual_seed(0)
    vectors = {name: torch.rand(size, generator=generator).to(device, dtype) + 0.5 for name in names}
    # rows of very different sizes, on the small ones eps decides; all with a mean, which tells the two kinds apart
    x = (torch.randn(8, size, generator=generator) + 0.5) * torch.logspace(-4, 1, 8)[:, None]
    x = x.to(device, dtype)
    with torch.no_grad():
        for name, vector in vectors.items():
            getattr(clone, name).data = vector
        out, read = clone(x), _read(clone, x)
        found = _agreeing(clone, out, x, vectors, read)
        missing = [name for name in read if getattr(clone, name, 0) is None]
        if found is None and len(missing) == 1:  # a bias that others have: what they compute is seen with one
            vectors[missing[0]] = torch.rand(size, generator=generator).to(device, dtype)
            setattr(clone, missing[0], torch.nn.Parameter(vectors[missing[0]]))
            found = _agreeing(clone, clone(x), x, vectors, read)
    return None if found is None else {**found, "dtype": str(dtype).removeprefix("torch.")}


def _agreeing(clone, out, x, vectors, read):
    """The formula that gives what a module gave, of nothing but what its `forward` read."""
    for eps_name, eps in _eps_candidates(clone, read) if out.dtype == x.dtype else ():
        errors = [(_error(out, value), facts) for facts, value in _formulas(x, vectors, eps)]
        fitting = [each for each in errors if each[0] <= _tolerance(x.dtype)]
        if fitting and read <= {*vectors, eps_name}:
            return {**min(fitting, key=lambda each: each[0])[1], "eps": eps_name, "eps_value": eps}
    return None


def _only(module, args, kwargs):
    """The tensor that a module was given, if it was given nothing else, and as the first that `forward` takes."""
    if len(args) + len(kwargs) != 1:
        return None
    if kwargs and _first_name(module) not in kwargs:
        return None
    x = [*args, *kwargs.values()][0]
    return x if isinstance(x, torch.Tensor) else None


def _first_name(module):
    try:
        return next(iter(inspect.signature(module.forward).parameters), "")
    except (TypeError, ValueError):  # a function that does not say
        return ""


def _read(clone, x):
    """Names of what `forward` reads of a module, a copy that is of no further use. Not those of the class's methods, in
    which it is followed, and not that of the shape of its vectors, which they have themselves.
    """
    names, cls = set(), type(clone)
    if hasattr(cls.__init_subclass__, "__func__"):
        raise TypeError("a class that looks at its subclasses would see the one that notes")
    shape = next(iter(clone.parameters())).shape

    class Noting(cls):
        def __getattribute__(self, name):
            names.add(name)
            return super().__getattribute__(name)

    clone.__class__ = Noting
    clone.forward(x)
    clone.__class__ = cls
    held = vars(clone)
    shapes = {name for name, value in held.items() if value in (shape[0], tuple(shape), list(shape))}
    methods = {name for name in names - held.keys() if inspect.isroutine(inspect.getattr_static(cls, name, None))}
    return names - shapes - methods - {"__class__", "__dict__"}


def _formulas(x, vectors, eps):
    """(what it says of a norm, what it gives) of each formula that takes as many vectors."""
    wide = x if x.dtype == torch.float64 else x.float()
    if len(vectors) == 1:
        ((name, weight),) = vectors.items()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        for offset in (0.0, 1.0):
            facts = {"kind": "rms", "weight": name, "bias": "", "offset": offset}
            yield {**facts, "order": "cast_then_weight"}, (offset + weight) * normed.to(x.dtype)
            yield {**facts, "order": "weight_then_cast"}, ((offset + weight.float()) * normed).to(x.dtype)
    normed = torch.nn.functional.layer_norm(wide, x.shape[-1:], eps=eps)
    for weight, bias in itertools.permutations([*vectors, ""], 2):
        if weight and len(vectors) == 1 + bool(bias):
            facts = {"kind": "layer", "weight": weight, "bias": bias, "offset": 0.0, "order": "weight_then_cast"}
            yield facts, normed * vectors[weight] + (vectors[bias] if bias else 0.0)


def _tolerance(dtype):
    return {torch.float32: 1e-5, torch.float64: 1e-6}.get(dtype, 2e-2)


def _error(out, expected):
    """Largest error relative to each row's largest value."""
    scale = expected.float().abs().amax(-1, keepdim=True).clamp_min(1e-30)
    return ((out.float() - expected.float()).abs() / scale).max().item()


def _eps_candidates(module, read):
    held = {name: getattr(module, name, None) for name in sorted(read)}
    named = [(n, v) for n, v in held.items() if isinstance(v, float) and 0 < v < 1e-2]
    return named + [("", eps) for eps in _EPS]


def _size(module):
    """The shape of the vectors that it holds, None where it holds anything else."""
    if next(module.children(), None) is not None or len(list(module.buffers(recurse=False))) > 0:
        return None
    shapes = {tuple(parameter.shape) for parameter in module.parameters(recurse=False)}
    few = 1 <= len(list(module.parameters(recurse=False))) <= 2
    return next(iter(shapes)) if few and len(shapes) == 1 and all(len(shape) == 1 for shape in shapes) else None
