# Ratchet: frozen.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Compile a module's calls with its weights as constants, which are laid out once as the processor prefers.

    @frozen(dynamic=False)
    class Model(nn.Module): ...

Takes the arguments of torch.compile. Each call checks every weight, buffer and other tensor of the module. When one was
written to, moved or replaced, everything is compiled again, at most CHANGES times; after that the plain call runs for
good. torch.compile guards whatever else a call depends on. Of writes that torch does not count, such as
`p.data.mul_()` when an adapter is merged, those to single elements are not seen (see sampled.py). Weights take twice
their memory. Copies of the module, and subclasses, share nothing with it.

The plain call runs instead with gradients, in training mode, with hooks or a `forward` of the module's own, under
dispatch modes and transforms, while compiling, tracing or capturing, and for weights that are more than plain tensors,
are shared between processes or lie in a container of the module. It runs for good once a call wrote to a weight or a
buffer, could not be compiled in one piece, or would return a constant, to which a caller might write. Not for one
module called from several threads at a time.
"""

import functools
import importlib

import torch
from torch.utils import _pytree

from .class_calls import through
from .eager import is_capturing, is_watched, means_more
from .per_module import PerModule
from .sampled import Sampled
from .watched import Watched

CHANGES = 4

_IMPL = "_compiled_call_impl"
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_states = PerModule()


def frozen(**settings):
    """Class decorator for nn.Module classes."""

    def call(module, plain, args, kwargs):
        if not _applies(module):
            return plain(*args, **kwargs)
        state = _states.get(module)
        if state is None:
            state = _states[module] = _Frozen(settings)
        return state.call(module, plain, args, kwargs)

    return through(call)


def _applies(module):
    if torch.is_grad_enabled() or module.training or torch.compiler.is_compiling():
        return False
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        return False
    return not (is_watched() or means_more() or is_capturing())


class _Frozen:
    """The compiled call of one module, and the weights that it holds as constants."""

    def __init__(self, settings):
        self.settings, self.compiled, self.state, self.weights, self.hooks = settings, None, None, None, ()
        self.config, self.left, self.first = None, CHANGES, None

    def call(self, module, plain, args, kwargs):
        if self.left < 0:
            return plain(*args, **kwargs)
        begins = self.compiled is None or not self._holds()
        if (begins and not self._begin(module)) or any(self.hooks):
            return plain(*args, **kwargs)
        errors = torch._dynamo.exc
        before, self.config.freezing = self.config.freezing, True  # whenever it compiles, for another shape too
        held = vars(module)
        others = held.get(_IMPL)
        held[_IMPL] = functools.partial(self.compiled, module)  # where nn.Module.__call__ looks for it
        try:
            result = plain(*args, **kwargs)
        except (errors.TorchDynamoException, errors.FailOnRecompileLimitHit):
            self._give_up()
        finally:
            self.config.freezing = before
            held[_IMPL] = others
        if self.left >= 0 and self._is_constant(result, args, kwargs, begins):
            self._give_up()
        if self.left < 0:
            return plain(*args, **kwargs)
        if begins and not self._holds():
            self._give_up()
        return result

    def _holds(self):
        return self.state.holds_as_before() and self.weights.are_still(self.state.tensors())

    def _is_constant(self, result, args, kwargs, begins):
        """Whether the first two calls gave the same memory, which is neither a weight's nor an argument's."""
        if begins:
            self.first = _places(result)
            return False
        before, self.first = self.first, None
        if not before:
            return False
        given = {*_places((args, kwargs)), *_places(self.state.tensors())}
        return any(place in before and place not in given for place in _places(result))

    def _begin(self, module):
        self.left -= 1
        self.state = Watched(module)
        known = self.state.knows_all and self.state.is_counted
        if self.left < 0 or not known or any(type(each) not in _PLAIN for each in self.state.tensors()):
            return self._give_up()
        self.weights = Sampled(self.state.tensors())
        self.config = importlib.import_module("torch._inductor.config")  # late, as it takes a second
        # torch.compile has no guards for hooks that come later
        self.hooks = tuple(held for m in module.modules() for held in (m._forward_hooks, m._forward_pre_hooks))
        # in one piece: what follows a break would be found under the code of `forward`, with the weights of before
        self.compiled = torch.compile(_calls_forward(), **{**self.settings, "fullgraph": True})
        return True

    def _give_up(self):
        self.left, self.compiled, self.state, self.weights, self.hooks, self.first = -1, None, None, None, (), None
        return False


def _calls_forward():
    """A function whose code is its own: what torch.compile made of another's is found under that one's code."""

    def call(module, *args, **kwargs):
        return module.forward(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_name="frozen_call")
    return call


def _places(values):
    """Where tensors lie, by address; as long as this is held, nothing else lies there."""
    leaves = [leaf for leaf in _pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return {leaf.data_ptr(): leaf for leaf in leaves if leaf.layout == torch.strided and leaf.numel()}
