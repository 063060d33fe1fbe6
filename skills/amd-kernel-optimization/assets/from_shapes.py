# Ratchet: from_shapes.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""What shapes and settings alone decide, such as whether a mask is needed, found out once and kept.

`from_shapes(build, *arguments)` is `build(*arguments)`, kept under a key of what it depends on: plain arguments by
value, settings (objects of plain attributes, or containers of such, and nothing else) by all of these, tensors by
shape, strides, dtype and device, which of them are the same, torch's own defaults, and whether gradients are recorded.
That it depends on nothing else of tensors is seen, not believed: at first `build` gets stand-ins for them, which have
no data, and copies of the settings. Where it asks for any data or what only one tensor carries, draws random numbers,
changes the settings or gives back what is neither plain nor a plain tensor, it runs in every call, as it would without
this. So it does while other code looks at or changes what operations mean. Each caller gets tensors of its own, on any
stream: what is kept on a GPU is waited for when it is built.

What is not seen: that `build` reads what others change (globals, classes of settings, context variables, modes of torch
functions, inference mode), asks for the type of a tensor, or does more than compute, which happens once, or once too
often.

Inside torch.compile it is not traced: the graph ends before it, and another begins. Where there must be one graph,
`build` itself is traced.
"""

import contextlib

import torch
from torch.utils import _python_dispatch, _pytree

from .eager import default_devices, is_capturing, is_exporting, is_plain
from .generators import Generators
from .kept import PLAIN, exactly, is_ordinary
from .streams import wait_for

MOST = 16  # results kept of one `build`
DEEPEST = 8  # containers in containers

_CONTAINERS = {list, tuple, set, frozenset}
_kept = {}  # build -> {key: _Kept, or None where it runs in every call}; recorded graphs may read it, so it stays


def from_shapes(build, *arguments):
    """The result of `build(*arguments)`."""
    if is_exporting() or torch.jit.is_tracing() or (torch.compiler.is_compiling() and _is_to_be_one_graph()):
        return build(*arguments)
    return _from_shapes(build, arguments)


@torch.compiler.assume_constant_result
def _is_to_be_one_graph():
    """Whether the code that is being compiled may not be left, as with fullgraph."""
    from torch._dynamo.symbolic_convert import InstructionTranslator  # there while something is compiled

    now = InstructionTranslator.current_tx()
    return bool(now.one_graph or getattr(now, "error_on_graph_break", False))


@torch.compiler.disable
def _from_shapes(build, arguments):
    key = _key(arguments) if is_plain() else None
    if key is None:
        return build(*arguments)
    known = _kept.setdefault(build, {})
    if key not in known and len(known) < MOST and not is_capturing():
        known[key] = _found_out(build, arguments)
    found = known.get(key)
    return build(*arguments) if found is None else found.copy()


class _Kept:
    """A result that nobody else has."""

    def __init__(self, value):
        self.outs, self.form = _flattened(value)

    def copy(self):
        """In containers and memory of its own, shared as the result's is."""
        memory, tensors = {}, {}
        for out in self.outs:
            if isinstance(out, torch.Tensor) and id(out) not in tensors:
                tensors[id(out)] = _copied(out, memory)
        return _pytree.tree_unflatten([tensors.get(id(out), out) for out in self.outs], self.form)


def _flattened(value):
    return _pytree.tree_flatten(value, is_leaf=lambda part: isinstance(part, torch.Size))


def _copied(tensor, memory):
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in memory:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        memory[storage.data_ptr()] = whole.clone().untyped_storage()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(memory[storage.data_ptr()], tensor.storage_offset(), tensor.shape, tensor.stride())


def _found_out(build, arguments):
    """What `build` gives by facts alone; None where it needs more."""
    asked, value = [], None
    others = {id(a): _in_place_of(a, asked) for a in arguments if type(a) not in PLAIN}
    generators = Generators()
    gradients = torch.set_grad_enabled(torch.is_grad_enabled())  # which leaving inference mode would change
    # What is wrong with the call itself, the call itself tells. What is born in inference mode could never be used for
    # training.
    with contextlib.suppress(_NoData, Exception), torch.inference_mode(False), gradients, _NoRandomNumbers(asked):
        value = _Kept(build(*[others.get(id(a), a) for a in arguments]))
    if generators.have_moved():
        asked.append(generators)
        generators.put_back()
    changed = any(_key([others[id(a)]]) != _key([a]) for a in arguments if _is_settings(a))
    if value is None or asked or changed or not all(map(_may_be_kept, value.outs)):
        return None
    wait_for([out for out in value.outs if isinstance(out, torch.Tensor)])
    return value


def _may_be_kept(out):
    if not is_ordinary(out):
        return type(out) in PLAIN
    special = out.is_quantized or out.is_conj() or out.is_neg()  # more than memory, offset, shape and strides
    return not (special or out.requires_grad or out.is_inference() or vars(out))


def _in_place_of(argument, asked):
    if isinstance(argument, torch.Tensor):
        return _StandIn(argument, asked)
    made = object.__new__(type(argument))
    vars(made).update({name: _rebuilt(value) for name, value in vars(argument).items()})
    return made


def _rebuilt(value):
    if type(value) is dict:
        return {name: _rebuilt(each) for name, each in value.items()}
    return type(value)(map(_rebuilt, value)) if type(value) in _CONTAINERS else value


class _NoData(BaseException):  # not to be caught as an error of the code that asks
    """A stand-in was asked for data, or random numbers were drawn."""


class _NoRandomNumbers(_python_dispatch.TorchDispatchMode):
    """Ends a call that draws any, before it does."""

    def __init__(self, asked):
        super().__init__()
        self.asked = asked

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if torch.Tag.nondeterministic_seeded in operation.tags:
            self.asked.append(str(operation))
            raise _NoData(operation)
        return operation(*args, **(kwargs or {}))


_GETTERS = "shape dtype device layout ndim is_cuda itemsize nbytes requires_grad"
_METHODS = """
    size stride dim ndimension numel nelement element_size get_device is_contiguous is_floating_point is_complex __len__
"""
_FACTS = {getattr(torch.Tensor, name).__get__ for name in _GETTERS.split()}
_FACTS |= {getattr(torch.Tensor, name) for name in _METHODS.split()}
_FACTS |= {torch.numel, torch.is_floating_point, torch.is_complex}


class _StandIn(torch.Tensor):
    """Has the facts of a tensor; whatever else is asked of it is noted, and ends the call."""

    @staticmethod
    def __new__(cls, tensor, asked):
        facts = {"strides": tensor.stride(), "dtype": tensor.dtype, "device": tensor.device}
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, **facts)

    def __init__(self, tensor, asked):
        vars(self)["_asked"] = asked

    def __getattr__(self, name):  # what only this one might carry
        self._note(name, (self,), {})

    def __setattr__(self, name, value):
        self._note(name, (self,), {})

    def __hash__(self):  # by which it might be found in a table
        self._note("hash", (self,), {})

    @classmethod
    def __torch_function__(cls, asked, types, args=(), kwargs=None):
        if asked not in _FACTS:
            cls._note(asked, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return asked(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, asked, types, args=(), kwargs=None):
        cls._note(asked, args, kwargs)

    @classmethod
    def _note(cls, asked, args, kwargs):
        for leaf in _pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, _StandIn):
                vars(leaf)["_asked"].append(str(asked))
        raise _NoData(asked)


class _Untold(Exception):
    """An argument is neither a plain tensor nor plain data."""


def _key(arguments):
    """All that a result may depend on; None where that cannot be told."""
    objects = [id(a) for a in arguments if type(a) not in PLAIN]
    same = tuple(map(objects.index, objects))
    try:
        facts = tuple(map(_facts, arguments))
    except _Untold:
        return None
    return torch.get_default_dtype(), *default_devices(), torch.is_grad_enabled(), same, facts


def _facts(argument):
    if isinstance(argument, torch.Tensor):
        if not is_ordinary(argument) or argument.requires_grad:
            raise _Untold
        return argument.shape, argument.stride(), argument.dtype, argument.device
    if type(argument) in PLAIN:
        return _value(argument)
    if not _is_settings(argument):
        raise _Untold
    return type(argument), _value(vars(argument))


class _Attributes:
    """Holds nothing but attributes. What holds more, such as a dict or what has slots, takes more memory than this."""


def _is_settings(argument):
    if isinstance(argument, (*PLAIN, torch.Tensor)) or type(argument).__basicsize__ != _Attributes.__basicsize__:
        return False
    return hasattr(argument, "__weakref__") and hasattr(argument, "__dict__")


def _value(value, depth=0):
    """Plain data by value, type and order, as a key."""
    kind = type(value)
    if kind in PLAIN:
        return exactly(value)
    if depth >= DEEPEST or not (kind is dict or kind in _CONTAINERS):
        raise _Untold
    return kind, tuple([_value(part, depth + 1) for part in (value.items() if kind is dict else value)])
