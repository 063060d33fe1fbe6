# Ratchet: graphed.py. Copied into this repository by an accepted change; it needs nothing but torch.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""Record a module's whole call as a graph, once for each form of its inputs, and replay it.

    @graphed
    class Model(nn.Module): ...

`@graphed(of=["step"])` records the calls of other methods instead, by which the module is entered.
A form (shapes, strides, dtypes, the values of non-tensors, and torch's defaults) is recorded the second time it is
seen. A replay copies the inputs into the recording's own and returns copies of its outputs, or large ones as they are
while nobody holds those before (see lent.py). Weights are read in place, so in-place writes are seen. Recordings are
dropped when a weight has moved or was replaced, or when an attribute or a hook of any part has changed (see
watched.py). Copies of the module, and subclasses, start without recordings. Results that `remembered` keeps for the
inputs are inputs themselves, looked up before each replay. A new attribute or part that makes inputs valid that were
not is seen only after a replay with them; a replay that is thrown away has drawn its random numbers.

State that lies in buffers on the device, such as a cache of keys, is read and written in place by a replay, as by the
call: once for each call. What the calls that make a recording write is undone, torch is told of what a replay writes,
and no such replay is thrown away. All other state has to be an input or stay as it is.

The plain call runs instead on a CPU, on a device that is not the current one, with gradients, in training mode of any
part, under autocast or anything that observes operations or modules, while compiling or capturing, for inputs that
share memory, or share it with a buffer that calls write to, and for more than MAX_GRAPHS forms. It runs for good once
a recording has failed, a call wrote to an input, a container of inputs or a tensor on a CPU, returned part of a buffer
that it writes to, or the module has changed more than MAX_CHANGES times, as one does that counts its calls in an
attribute; `given_up` then says why. Not for modules that keep state elsewhere from call to call, as in an object that
is no part of them, nor for one module called from several threads or streams at a time.
"""

import contextlib
import functools
import math
import threading
import traceback
import warnings
from pathlib import Path

import torch
from torch import is_grad_enabled, is_inference_mode_enabled
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling
from torch.cuda import is_current_stream_capturing, is_initialized
from torch.utils import _pytree as pytree

from .arguments import put_together, still_hold, take_apart
from .class_calls import through
from .eager import default_devices, is_plain, is_watched
from .kept import PLAIN, equal, exactly, version
from .lent import Lent
from .per_module import PerModule
from .undone import are_in_one_memory, is_in, undone
from .watched import Watched

try:
    from .recording import Recording
except ImportError:  # it comes with `remembered`, whose results it keeps out of recordings

    class Recording:
        def __init__(self, inputs):
            self.being_made, self.refresh, self.holds = contextlib.nullcontext, lambda leaves: True, lambda: True


MAX_GRAPHS = 8
MAX_CHANGES = 16
SMALL = 1 << 20  # bytes: copying so much takes the device less time than the host takes to ask for it
MANY = 5  # so many tensors are copied at once; of fewer, copies are made sooner one by one, after other work
WARM_UP_CALLS = 3  # on the stream that records: library handles and workspaces belong to a stream

_COPIED_AT_ONCE = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
MOST_REASONS = 8
given_up = []  # why calls are not recorded, of the first modules for which that is so
_recorders = PerModule()


def graphed(cls=None, *, of=("__call__",)):
    """Class decorator for nn.Module classes."""
    if cls is None:
        return functools.partial(graphed, of=of)
    for name in of:
        cls = through(functools.partial(_call, name), name)(cls)
    return cls


def _call(name, module, plain, args, kwargs):
    if not _applies(module):
        return plain(*args, **kwargs)
    recorder = _recorders.get(module)
    if recorder is None:
        recorder = _recorders[module] = _Recorder()
    return recorder.call(name, module, plain, args, kwargs)


def _applies(module):
    if is_dynamo_compiling() or is_grad_enabled() or module.training:
        return False
    return is_initialized() and is_plain() and not (is_watched() or is_current_stream_capturing())


class _Recorder:
    """The recordings of one module. They share a stream and a memory pool, since they never run side by side."""

    def __init__(self):
        self.failed = ""  # why nothing is recorded any more
        self.graphs = {}  # form of the inputs -> recording, or None when seen once
        self.state = None  # of the module, for which the recordings serve
        self.written = []  # tensors of it that calls write to
        self.changes = 0
        self.small = SMALL  # bytes of an output that is not lent

    def call(self, name, module, plain, args, kwargs):
        leaves, structure = take_apart(args, kwargs)
        form = None if self.failed else _form(name, leaves, structure)
        if form is None:
            return plain(*args, **kwargs)
        graph = self.graphs.get(form)
        if graph is None or not self.state.lies_as_before():  # a replay would read memory that is gone
            if not self._is_as_before():
                self._begin(module)
            if self.failed or not self.recordable:
                return plain(*args, **kwargs)
            if form not in self.graphs:
                return self._first(form, plain, leaves, structure, args, kwargs)
            graph = self.graphs[form] = self._record(module, plain, leaves, structure)
        if graph is not None and (graph := graph.at_hand()) is None:  # results are held for longer than a loop does
            self.small = math.inf
            self._begin(module)
        if graph is None or not graph.recording.refresh(leaves):
            return plain(*args, **kwargs)
        if self.written:
            if not self._is_set_as_before():  # what a replay writes cannot be taken back
                self._begin(module)
            if not self.graphs or are_in_one_memory(leaves, self.written):
                return plain(*args, **kwargs)
            out = graph.replay(leaves)
            increment_version(self.written)
            return out
        out = graph.replay(leaves)
        if self._is_set_as_before():  # asked while the device works; a replay only draws random numbers
            return out
        torch.cuda.current_stream().synchronize()
        self._begin(module)
        return plain(*args, **kwargs)

    def _begin(self, module):
        """Without recordings, for the module as it is now."""
        self.changes += self.state is not None
        self.graphs, self.state, self.written = {}, Watched(module), []
        # a pool that has lost its graphs takes no others
        self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        self.device = self.stream.device.index
        elsewhere = any(t.is_cuda and t.device != self.stream.device for t in self.state.tensors())
        self.recordable = self.state.only_computes and not elsewhere
        self.on_host = [each.detach().clone() for each in _on_host(self.state)] if self.recordable else []
        if self.changes > MAX_CHANGES:
            self._give_up("the module, its attributes or its hooks change again and again")

    def _is_as_before(self):
        if self.state is None or self.device != torch.cuda.current_device():
            return False
        return self.state.lies_as_before() and self._is_set_as_before()

    def _is_set_as_before(self):
        """Also what is recorded by its value: a tensor on a CPU."""
        if not self.state.is_set_as_before():
            return False
        return not self.on_host or all(map(equal, self.on_host, _on_host(self.state)))

    def _first(self, form, plain, leaves, structure, args, kwargs):
        held, given = [(tensor, version(tensor)) for tensor in self.state.tensors()], list(map(version, leaves))
        out = plain(*args, **kwargs)
        written = [tensor for tensor, before in held if version(tensor) != before]
        if list(map(version, leaves)) != given or not still_hold(args, kwargs, leaves, structure):
            self._give_up("a call writes to what it is given")
        elif not all(map(_can_be_undone, written)):
            self._give_up("a call writes to a tensor on the host, or to one that is not in a place of its own")
        else:
            self.written += [tensor for tensor in written if not is_in(tensor, self.written)]
            if len(self.graphs) < MAX_GRAPHS:
                self.graphs[form] = None
            self._keep_apart(*self.graphs.values())
        return out

    def _record(self, module, plain, leaves, structure):
        """None where it serves no call: then the next one is recorded where only weights were moved meanwhile."""
        held = [(tensor, version(tensor)) for tensor in self.state.tensors()]
        weights = [t for t, _ in held if isinstance(t, torch.nn.Parameter) and not is_in(t, self.written)]
        buffers = [t for t, _ in held if _can_be_undone(t) and not is_in(t, weights)]
        try:
            make = functools.partial(_Graph, plain, leaves, structure, self.stream, self.pool, buffers, self.written)
            graph = make(self.small)
            graph.twin = make(self.small) if graph.lent.tensors else None  # one is held until the next is there
        except (RuntimeError, UserWarning) as error:  # it cannot be recorded; the plain call still can be made
            torch.cuda.synchronize()
            return self._give_up(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}{_place(error)}")
        if graph.wrote:
            return self._give_up("a call writes to what it is given")
        if not self.state.lies_as_before():
            return self._begin(module)
        others = any(version(tensor) != before for tensor, before in held if not is_in(tensor, self.written))
        if others or not self._is_set_as_before():
            return self._give_up("a call changes its module in another way than the one before")
        return self._keep_apart(graph, *self.graphs.values())

    def _keep_apart(self, graph, *others):
        """The graph, unless one hands out copies of what calls write to, which whoever holds it would see."""
        made = [output for each in (graph, *others) if each is not None for output in each.outputs]
        if self.written and are_in_one_memory(made, self.written):
            return self._give_up("an output lies in a buffer that calls write to")
        return graph

    def _give_up(self, why):
        self.failed, self.graphs, self.state, self.written = why, {}, None, []
        if len(given_up) < MOST_REASONS:
            given_up.append(why)


class _Graph:
    """One recording, with inputs and outputs of its own. `written` are those of `buffers` that a call writes to; more
    are added where more are found. Outputs of more than `small` bytes are lent.
    """

    twin = None  # another such recording, for calls while what this one lent is held

    def __init__(self, plain, leaves, structure, stream, pool, buffers, written, small):
        self.inputs = [_own(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.recording = Recording(self.inputs)
        versions = list(map(version, self.inputs))
        args, kwargs = put_together(self.inputs, structure)
        stream.wait_stream(torch.cuda.current_stream())
        with self.recording.being_made(), torch.cuda.stream(stream), undone(buffers, written) as undo:
            for _ in range(WARM_UP_CALLS - 1):
                plain(*args, **kwargs)
                undo()
            with _waiting_fails():
                plain(*args, **kwargs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # other threads may do what a recording forbids
        graph = torch.cuda.graph(self.graph, pool=pool, stream=stream, capture_error_mode="thread_local")
        with self.recording.being_made(), _mended(stream), _nothing_fails(), graph:
            out = plain(*args, **kwargs)
        plain_tuple = type(out) is tuple and all(type(each) is torch.Tensor for each in out)
        self.outputs, self.structure = (out, None) if plain_tuple else pytree.tree_flatten(out)
        self.wrote = versions != list(map(version, self.inputs)) or not still_hold(args, kwargs, self.inputs, structure)
        self.lent = Lent(self.outputs, self.inputs, small)
        copied = [None if place in self.lent.tensors else each for place, each in enumerate(self.outputs)]
        self.taken, self.made = _at_once(self.inputs), _at_once(copied)
        if not self.recording.holds():
            raise RuntimeError("what is remembered was written to, or is not the same outside of the call")
        if not all(isinstance(leaf, (torch.Tensor, *PLAIN)) for leaf in self.outputs):
            raise RuntimeError("the outputs are more than tensors and plain values")

    def at_hand(self):
        """The one of the two that may be replayed now."""
        return self if self.lent.is_back() else self.twin and self.twin.at_hand()

    def replay(self, leaves):
        alone, together = self.taken
        for place, mine in alone:
            mine.copy_(leaves[place])
        for places, mine in together:
            torch._foreach_copy_(mine, [leaves[place] for place in places])
        self.graph.replay()
        # the next replay writes over the recording's outputs, and the caller may still hold these
        out = list(self.outputs)
        self.lent.put_into(out)
        alone, together = self.made
        for place, made in alone:
            out[place] = made.clone()
        for places, made in together:
            copies = [torch.empty_like(tensor) for tensor in made]
            torch._foreach_copy_(copies, made)
            for place, tensor in zip(places, copies, strict=True):
                out[place] = tensor
        return tuple(out) if self.structure is None else pytree.tree_unflatten(out, self.structure)


def _place(error):
    """` (model.py:12)`: where in code that is neither torch's nor ours."""
    folders = {Path(file).parent for file in (torch.__file__, __file__)}
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    others = [(path.name, line) for path, line in frames if folders.isdisjoint(path.parents)]
    return " ({}:{})".format(*others[-1]) if others else ""


def _can_be_undone(tensor):
    return tensor.is_cuda and _is_dense(tensor)


@contextlib.contextmanager
def _waiting_fails():
    """What waits for the device, as reading a value does, raises RuntimeError, and does not spoil a recording.

    It would in other threads, too: where there are some, the recording itself has to find out.
    """
    if threading.active_count() > 1:
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is a prototype, and does not find everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@contextlib.contextmanager
def _nothing_fails():
    """A recording of nothing is an error; where the call failed before it launched anything, that is the error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The CUDA Graph is empty", UserWarning)
        try:
            yield
        except UserWarning as nothing:
            raise nothing.__context__ or nothing from None


@contextlib.contextmanager
def _mended(stream):
    """After a recording that failed, torch takes it for going on and hands out no random numbers until another ends."""
    try:
        yield
    except BaseException:
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            torch.zeros(1, device=stream.device)
        raise


def _at_once(leaves):
    """([(place, tensor)], [(places, tensors)]): the tensors among the leaves, and those that one launch copies."""
    groups = {}
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            together = type(leaf) is torch.Tensor and leaf.dtype in _COPIED_AT_ONCE
            together = together and leaf.layout == torch.strided and not leaf.is_nested
            together = together and leaf.numel() * leaf.element_size() <= SMALL
            groups.setdefault((leaf.dtype, leaf.device) if together else place, []).append(place)
    few = [place for places in groups.values() if len(places) < MANY for place in places]
    many = [places for places in groups.values() if len(places) >= MANY]
    return [(place, leaves[place]) for place in few], [(places, [leaves[p] for p in places]) for places in many]


def _form(name, leaves, structure):
    """What must be equal for a recording to serve; None for inputs that cannot be copied into place."""
    default, current = default_devices()
    parts, tensors = [name, structure, torch.get_default_dtype(), default, current, is_inference_mode_enabled()], []
    for leaf in leaves:
        if type(leaf) is torch.Tensor:
            if not leaf.is_cuda or leaf.requires_grad or leaf.is_nested or not _is_dense(leaf):
                return None
            if leaf.get_device() != current:  # whose streams are not those that are recorded
                return None
            tensors.append(leaf)
            parts.append((leaf.shape, leaf.stride(), leaf.dtype))
        elif isinstance(leaf, PLAIN):
            parts.append(exactly(leaf))
        else:
            return None
    alone = len(tensors) == 1 or len({each.untyped_storage().data_ptr() for each in tensors}) == len(tensors)
    return tuple(parts) if tensors and alone else None


def _is_dense(tensor):
    """Whether every element has its own place and there are no gaps."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return False
    if tensor.is_contiguous():
        return True
    place = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != place:
                return False
            place *= size
    return True


def _own(tensor):
    with torch.inference_mode(False):  # or writing to it would not be counted
        own = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return own.copy_(tensor)


def _on_host(state):
    return [each for each in state.tensors() if each.device.type == "cpu"]
