"""A trace of one call: every torch operation with its operands, its place and its time, and what its value depends on.

It keeps no tensor alive and changes none: a number is pinned on each tensor that was seen. What a value depends on is
kept as flags, 0 for a tensor made from shapes, dtypes, devices and numbers alone. CONSTANT are inputs that the entry
says stay the same from call to call.

Once Python was given numbers of a tensor, a tensor made of plain values may be made of those, and has the flags of all
that was read so far. Numbers on other ways, as an operand or an answer yes or no, are not followed.
"""

from __future__ import annotations

import functools
import itertools
import time

import torch
from torch.overrides import TorchFunctionMode

from .module_calls import ModuleCalls
from .observe_mask import summarize_mask
from .observe_reads import GIVES_NUMBERS, MADE_OF_VALUES, on_host, read_of, said_by_name, sent_by

INPUT, PARAMETER, RANDOM, EXTERNAL, CONSTANT = 1, 2, 4, 8, 16
MAX_OPS = 20_000
_TAG = "_ratchet_observed"  # (number of the trace, number of the value)
_numbers = itertools.count(1)


def _words(text):
    return frozenset(text.split())


_RANDOM = _words("""
    rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal dropout
    alpha_dropout empty empty_like empty_strided new_empty bernoulli_ normal_ uniform_ random_ exponential_
""")
_NO_OPERATION = _words("""
    size dim stride numel element_size data_ptr is_contiguous storage_offset nelement
""")
_IN_PLACE = _words("""
    __setitem__ __iadd__ __isub__ __imul__ __itruediv__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__
""")
_SPELLED = {
    "add": "__add__ __radd__ __iadd__",
    "sub": "__sub__ __isub__ subtract",
    "rsub": "__rsub__",
    "mul": "__mul__ __rmul__ __imul__ multiply",
    "div": "__truediv__ __itruediv__ true_divide divide",
    "pow": "__pow__",
    "matmul": "__matmul__",
    "getitem": "__getitem__",
    "softmax": "_softmax",
}
_NAMES = {spelling: name for name, spellings in _SPELLED.items() for spelling in spellings.split()}
_HAVE_IN_PLACE = frozenset(("add", "sub", "mul", "div", "masked_fill"))


class Op:
    # read: tags of the operands whose values Python read; sent: of what went from the host to a device
    __slots__ = _words("args changed copied frames index kwargs mask module name outs read seconds sent")

    def operands(self):
        """Tags of the tensor operands, in order."""
        return [tag for kind, tag in _leaves((self.args, self.kwargs)) if kind == "tensor"]


class Value:
    __slots__ = ("consumed", "dtype", "flags", "op", "root", "shape")


class ModuleCall:
    """A call of a module by another: the operations in it, what came out, and from where it was called."""

    __slots__ = ("attribute", "end", "frames", "module", "outs", "start")

    def seconds(self, trace):
        return sum(op.seconds for op in trace.ops[self.start : self.end])


class Trace(ModuleCalls, TorchFunctionMode):
    def __init__(self, where, inputs, synchronize, constants=()):
        super().__init__()
        self.where, self.synchronize = where, synchronize
        self.number = next(_numbers)
        self.ops, self.values, self.roots, self.calls = [], [], [], []
        self.mutated = {}  # root -> [op index]
        self.truncated, self.total_s = False, 0.0  # of the operations alone, without what tracing them costs
        self._told = 0  # flags of what Python was given numbers of
        self._modules, self._starts = [], []
        self._known = {id(t) for _, m in where.modules.values() for t in (*_own(m.parameters), *_own(m.buffers))}
        constants = {id(tensor) for tensor in constants}
        for tensor in inputs:
            self._tag(tensor, CONSTANT if id(tensor) in constants else INPUT, None, None)

    def __enter__(self):
        ModuleCalls.__enter__(self)
        return TorchFunctionMode.__enter__(self)

    def __exit__(self, *error):
        self.total_s = sum(op.seconds for op in self.ops)
        ModuleCalls.__exit__(self)
        return TorchFunctionMode.__exit__(self, *error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _NO_OPERATION or len(self.ops) >= MAX_OPS:
            self.truncated |= len(self.ops) >= MAX_OPS
            return func(*args, **kwargs)
        if name == "__get__":
            result = func(*args, **kwargs)
            if isinstance(result, torch.Tensor):
                self._record(func.__self__.__name__, args, kwargs, result, 0.0)
            return result
        start = time.perf_counter()
        result = func(*args, **kwargs)
        self.synchronize()
        self._record(name, args, kwargs, result, time.perf_counter() - start)
        return result

    # -- recording

    def before(self, module):
        self._modules.append(module)
        self._starts.append(len(self.ops))

    def after(self, module, args, kwargs, result):
        self._modules.pop()
        call = ModuleCall()
        call.module, call.start, call.end = module, self._starts.pop(), len(self.ops)
        call.outs = [self._known_tag(tensor) for tensor in _tensors(result)]
        call.frames = self.where.frames(3)
        call.attribute = self.where.below(module, self._modules[-1]) if self._modules else ""
        self.calls.append(call)

    def _record(self, name, args, kwargs, result, seconds):
        op = Op()
        op.index, op.name, op.seconds = len(self.ops), _plain_name(name), seconds
        op.frames, op.module = self.where.frames(3), self._modules[-1] if self._modules else None
        op.args, op.kwargs = self._plain(args), {k: self._plain(v) for k, v in kwargs.items()}
        op.mask = summarize_mask(op.name, args, kwargs)
        tags = op.operands()
        flags = RANDOM if name in _RANDOM else 0
        for tag in tags:
            flags |= self.flags(tag)
        op.read = self._note_reads(name, args, kwargs, result, tags)
        if name in GIVES_NUMBERS:
            self._told |= flags
        elif name in MADE_OF_VALUES:
            flags |= self._told
        op.changed = self._note_changes(op, name, args, kwargs, flags)
        for tag in tags if flags else ():
            self.values[tag].consumed = True
        operands = _tensors((args, kwargs))
        op.copied, op.outs = True, []
        for tensor in _tensors(result):
            alias = next((t for t in operands if _shares(t, tensor)), None)
            op.copied &= alias is None
            op.outs.append(self._tag_result(tensor, flags, op, alias))
        op.sent = [self._known_tag(tensor) for tensor in sent_by(name, args, kwargs, result)]
        self.ops.append(op)

    def _note_reads(self, name, args, kwargs, result, tags):
        """Not of what lies on the host and comes from shapes alone, where an operation only takes it for a number: that
        makes nothing wait, and a recording is right.
        """
        if said_by_name(name):
            return tags
        tensors = read_of(name, args, kwargs, result)
        return [tag for t in tensors if self.flags(tag := self._known_tag(t)) or not on_host(t)]

    def _note_changes(self, op, name, args, kwargs, flags):
        named = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        if not (named or "out" in kwargs or kwargs.get("inplace")):
            return None
        target = kwargs.get("out", args[0] if args else kwargs.get("input"))
        if not isinstance(target, torch.Tensor):
            return None
        root = self.values[self._known_tag(target)].root
        self.roots[root] |= flags
        self.mutated.setdefault(root, []).append(op.index)
        self._tag(target, flags, op.index, root)  # from here on it is another value
        return root

    def _tag_result(self, tensor, flags, op, alias):
        if alias is not None and tensor is alias:
            return self._known_tag(tensor)
        root = self.values[self._known_tag(alias)].root if alias is not None else None
        return self._tag(tensor, flags, op.index, root)

    def _tag(self, tensor, flags, op, root):
        value = Value()
        if root is None:
            root = len(self.roots)
            self.roots.append(0)
        value.flags, value.op, value.root = flags, op, root
        value.shape, value.dtype, value.consumed = _shape(tensor), tensor.dtype, False
        self.values.append(value)
        setattr(tensor, _TAG, (self.number, len(self.values) - 1))
        return len(self.values) - 1

    def _plain(self, value, depth=0):
        if isinstance(value, torch.Tensor):
            return ("tensor", self._known_tag(value))
        if isinstance(value, (tuple, list)) and depth < 4:
            return tuple(self._plain(v, depth + 1) for v in value)
        if isinstance(value, slice):
            ends = [end for end in (value.start, value.stop, value.step) if isinstance(end, torch.Tensor)]
            return ("slice", *(self._plain(end) for end in ends)) if ends else "slice"
        if isinstance(value, (int, float, bool, str, type(None), torch.dtype)):
            return value
        return type(value).__name__

    def _known_tag(self, tensor):
        number, tag = getattr(tensor, _TAG, (0, 0))
        if number == self.number:
            return tag
        return self._tag(tensor, PARAMETER if id(tensor) in self._known else EXTERNAL, None, None)

    # -- asking

    def flags(self, tag):
        return self.values[tag].flags | self.roots[self.values[tag].root]

    def producer(self, tag):
        index = self.values[tag].op
        return None if index is None else self.ops[index]

    def consumers(self, tag):
        return self._by_operand.get(tag, [])

    @functools.cached_property
    def _by_operand(self):
        """Asked once all is recorded."""
        found = {}
        for op in self.ops:
            for tag in op.operands():
                if op.changed is not None or tag not in op.outs:  # else it handed its operand back: no use of the value
                    found.setdefault(tag, []).append(op)
        return found


def _plain_name(name):
    """One name for `a + b`, `a += b` and `a.add_(b)`."""
    if name in _NAMES:
        return _NAMES[name]
    in_place = name.endswith("_") and not name.endswith("__")
    return name[:-1] if in_place and name[:-1] in _HAVE_IN_PLACE else name


def _own(of):
    return of(recurse=False)


def _leaves(value):
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "tensor":
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)


def _tensors(value, depth=0):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)) and depth < 4:
        return [t for item in value for t in _tensors(item, depth + 1)]
    return []


def _shares(a, b):
    if a is b:
        return True
    a, b = _inside(a), _inside(b)
    if a.layout != torch.strided or b.layout != torch.strided or a.device != b.device:
        return False
    try:
        return a.untyped_storage()._cdata == b.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # a tensor that has none
        return False


def _inside(tensor):
    """What a transform of functorch, as vmap, has wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _shape(tensor):
    """Empty for a nested tensor, whose rows differ."""
    return () if tensor.is_nested else tuple(tensor.shape)
