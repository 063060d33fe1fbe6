"""Watch the calls of outermost modules while a script runs: record them, or stop the script when it has made enough.

A module is outermost while no other module's call is running. What is watched is given back as it was.
"""

from __future__ import annotations

import copy
import dataclasses
import time
import weakref

import torch

from .digest import Digest
from .on_device import synchronize
from .tensors import attributes, is_plain, remade
from .workload import WorkloadProblem

MOST_CALLS = 512
MOST_S = 60.0  # after the first call


class Stop(BaseException):
    """Ends a script from inside a call; not an Exception, which scripts catch."""


class _Watcher:
    """Stands in for `torch.nn.Module.__call__` but inside of a call, so that compilers find there what they know.

    What torch.compile wraps keeps the function that it found, and then that one only passes on.
    """

    def __enter__(self):
        self._passes_on = False
        self._original = original = torch.nn.Module.__call__

        def call(module, *args, **kwargs):
            if self._passes_on:
                return original(module, *args, **kwargs)
            return self.outermost(module, args, kwargs)

        self._ours = torch.nn.Module.__call__ = call
        return self

    def __exit__(self, *error):
        torch.nn.Module.__call__, self._passes_on = self._original, True
        return False

    def call(self, module, args, kwargs):
        torch.nn.Module.__call__, self._passes_on = self._original, True
        try:
            return self._original(module, *args, **kwargs)
        finally:
            torch.nn.Module.__call__, self._passes_on = self._ours, False


class Call:
    """One call of an outermost module: its arguments by position or name, and which calls before it it builds on."""

    def __init__(self, number, module):
        self.number, self.module = number, module
        self.arguments, self.links, self.seconds = {}, set(), 0.0


class Recorder(_Watcher):
    """Records every call, in order. Keeps the objects that are handed over, so that none has the id of another."""

    def __init__(self):
        self.calls, self.problem, self.trained, self.cut_short = [], None, False, False
        self._begun = None
        self._objects = {}  # id -> (object, where it was seen first: ("arg" or "out", call, *path))
        self._tensors = {}  # id -> (weak reference, the same)
        self._looks = {}  # (id, what tells its contents apart) of a tensor -> (weak reference, `Looks`)

    def __enter__(self):
        self._backward = torch.autograd.backward

        def backward(*args, **kwargs):
            self.trained = True
            return self._backward(*args, **kwargs)

        torch.autograd.backward = backward
        return super().__enter__()

    def __exit__(self, *error):
        torch.autograd.backward = self._backward
        return super().__exit__(*error)

    @property
    def satisfied(self):
        """Whether it saw what it is there for."""
        return bool(self.calls)

    def failed(self, problem):
        """What the script raised; it counts only where nothing was recorded before."""
        self.problem = problem
        if not self.satisfied:
            raise problem

    def outermost(self, module, args, kwargs):
        self._begun = self._begun or time.monotonic()
        if len(self.calls) >= MOST_CALLS or time.monotonic() - self._begun > MOST_S:
            self.cut_short = True
            raise Stop
        call = Call(len(self.calls), module)
        for name, value in _named(args, kwargs).items():
            call.arguments[name] = self._seen(value, ("arg", call.number, name), call)
        self.calls.append(call)
        synchronize()
        start = time.perf_counter()
        out = self.call(module, args, kwargs)
        synchronize()
        call.seconds = time.perf_counter() - start
        self._given_out(out, ("out", call.number))
        return out

    def _seen(self, value, where, call):
        """A nesting of `Tensor`, `Ref` and plain values that says what was given."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, where, call)
        if isinstance(value, PLAIN):
            return value
        parts = parts_of(value)
        if parts is not None:
            return rebuilt(value, {key: self._seen(item, (*where, key), call) for key, item in parts.items()})
        held, first = self._objects.setdefault(id(value), (value, where))
        if first[1] != call.number and holds_tensors(held):
            call.links.add(first[1])
        return Ref(first)

    def _tensor(self, value, where, call):
        """Raises: WorkloadProblem."""
        if not is_plain(value):
            raise WorkloadProblem(
                "bad_declaration",
                f"it is given a {value.layout} tensor, which cannot be drawn again; declare build() and inputs(seed) "
                "instead, with its parts as arguments, of which the call makes it",
            )
        reference, first = self._tensors.get(id(value), (None, None))
        if reference is None or reference() is not value:
            first = where
            self._tensors[id(value)] = (weakref.ref(value), first)
        if first[0] == "out":
            call.links.add(first[1])
        return Tensor(first, self._looks_of(value))

    def _looks_of(self, value):
        """The same `Looks` as long as the same tensor holds the same."""
        key = (id(value), _contents(value))
        reference, looks = self._looks.get(key, (None, None))
        if reference is None or reference() is not value:
            looks = Looks(value.detach())
            self._looks[key] = (weakref.ref(value), looks)
        return looks

    def _given_out(self, out, where):
        if isinstance(out, torch.Tensor):
            self._tensors[id(out)] = (weakref.ref(out), where)
        elif not isinstance(out, PLAIN):
            parts = parts_of(out)
            if parts is None:
                self._objects.setdefault(id(out), (out, where))
            for key, item in (parts or {}).items():
                self._given_out(item, (*where, key))


class Cut(_Watcher):
    """Lets a script run until its module and the objects it hands over are there, as a recipe says."""

    def __init__(self, recipe):
        self.root, self.templates = None, {}
        self._root, self._wanted = recipe["root"], [(int(ref[0]), ref[1:]) for ref in recipe["objects"]]
        self._last = max([self._root, *(number for number, _ in self._wanted)])
        self._number = -1

    @property
    def satisfied(self):
        return self.root is not None

    def failed(self, problem):
        raise problem

    def outermost(self, module, args, kwargs):
        self._number += 1
        if self._number > self._last:
            raise Stop
        for number, path in self._wanted:
            if number == self._number:
                place = (str(number), *path)
                self.templates[place] = copy.deepcopy(at(_named(args, kwargs), path))
        if self._number == self._root:
            self.root = module
        if self._number == self._last:
            raise Stop
        return self.call(module, args, kwargs)


def _named(args, kwargs):
    return {**{str(index): value for index, value in enumerate(args)}, **kwargs}


def _contents(value):
    """What becomes another when a tensor is written to."""
    if not value.is_inference():
        return value._version
    with torch.inference_mode(False):  # its writes are not counted
        digest = Digest([value], key=0)
        synchronize()
        return digest.digits()


# ---- Nestings: tuples, lists, dictionaries of any class with names as keys, and dataclasses

PLAIN = (type(None), bool, int, float, str)


def parts_of(value):
    """{name: part} of a nesting; None for what is none, which is passed on as an object."""
    if isinstance(value, dict):
        return dict(value) if all(isinstance(key, str) for key in value) else None
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return {str(index): item for index, item in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return attributes(value)
    return None


def rebuilt(like, parts):
    """A nesting with other parts."""
    if isinstance(like, (tuple, list)):
        return type(like)(*parts.values()) if hasattr(like, "_fields") else type(like)(parts.values())
    if isinstance(like, dict):
        return parts if type(like) is dict else type(like)(**parts)
    return remade(type(like), parts)


def at(value, path):
    """What lies in a nesting."""
    for name in path:
        value = parts_of(value)[name]
    return value


class Tensor:
    """A tensor that was given: what it looked like, and where the same one was seen first."""

    def __init__(self, first, looks):
        self.first, self.looks = first, looks

    @property
    def identity(self):
        """Which tensor it was, and what was in it."""
        return self.first, id(self.looks)


class Ref:
    """An object that is no tensor and no nesting: where it was seen first."""

    def __init__(self, first):
        self.first = first


class Looks:
    """What a tensor looked like, to draw others like it. Holds its values only where they have a pattern."""

    def __init__(self, value):
        self.shape, self.dtype, self.device, self.stride = value.shape, value.dtype, value.device, value.stride()
        self.same, self.range, self.normal = None, None, None
        if value.numel() < 2 or value.is_complex() or value.dtype == torch.bool or _has_pattern(value):
            self.same = value.cpu().clone()
        elif value.is_floating_point():
            wide = value.float()
            low, high = wide.min().item(), wide.max().item()
            self.normal = (wide.mean().item(), wide.std().item(), low, high)
        else:
            self.range = (value.min().item(), value.max().item())

    def __eq__(self, other):
        return (self.shape, self.dtype, self.device) == (other.shape, other.dtype, other.device)

    def __hash__(self):
        return hash((self.shape, self.dtype))

    def draw(self, generator):
        """On its device, with its strides."""
        if self.same is not None:
            drawn = self.same
        elif self.range is not None:
            drawn = torch.randint(self.range[0], self.range[1] + 1, self.shape, generator=generator)
        else:
            mean, deviation, low, high = self.normal
            drawn = (torch.randn(self.shape, generator=generator) * deviation + mean).clamp(low, high)
        into = torch.empty_strided(self.shape, _without_overlap(self.shape, self.stride), dtype=self.dtype)
        return into.copy_(drawn).to(self.device)


def _has_pattern(value):
    """Masks, positions, constants: what is drawn at random would mean something else."""
    flat = value.flatten()
    if value.is_floating_point() and not bool(torch.isfinite(flat).all()):
        return True
    if value.is_floating_point():
        sample = flat if flat.numel() <= 1 << 16 else flat[: 1 << 16]
        return torch.unique(sample).numel() <= 2 and torch.unique(flat).numel() <= 2
    if bool(((flat == 0) | (flat == 1)).all()):
        return True
    rows = value.reshape(-1, value.shape[-1]) if value.dim() else flat[None]
    steps = rows[:, 1:] - rows[:, :-1]
    return steps.numel() > 0 and bool((steps == steps.flatten()[0]).all())


def _without_overlap(shape, stride):
    """A tensor that was expanded gets memory of its own."""
    if any(s == 0 and n > 1 for n, s in zip(shape, stride, strict=True)):
        return torch.empty(shape, device="meta").stride()
    return stride


def holds_tensors(value, depth=3):
    """Whether it is a state that calls hand on, and no setting."""
    if isinstance(value, torch.Tensor):
        return True
    if depth == 0 or isinstance(value, (*PLAIN, type, torch.nn.Module)):
        return False
    parts = parts_of(value)
    inside = parts.values() if parts is not None else vars(value).values() if hasattr(value, "__dict__") else ()
    return any(holds_tensors(part, depth - 1) for part in inside)
