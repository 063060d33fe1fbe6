"""A worker: build one tree's callable, stage an input, call it, and commit to the outputs by a digest.

The same code is timed and checked. It sees only the inputs it is given, one at a time.
"""

from __future__ import annotations

import copy
import gc
import pickle
import resource
import sys
import weakref
from contextlib import nullcontext, suppress
from functools import partial

import torch

from . import choices, forms, gradients, process_state, states, tensors, together, tripwires, values, workload
from .digest import Digest
from .memory import is_spread, overlap, storage
from .observe_where import OURS
from .on_device import synchronize


class Worker:
    def __init__(self, tree, entry):
        self.tree, self.entry = tree, entry
        self.workload = None
        self.built = None
        self.mode = None
        self.precision = self.parameters = None
        self._forget_calls()
        self.identities, self.settings = tripwires.snapshot(), process_state.read()
        self.settings_built, self.drew = {}, set()

    def _forget_calls(self):
        """Arguments that stay the same from call to call are taken from the next one."""
        self.arguments, self.staged, self.constants = (), (None, []), {}
        self.arguments_before = ()
        self.result, self.loaded = (None, []), None

    # -- the callable

    def op_build(self, mode="inference", init=None, compile_options=None, recipe=None):
        """Build the callable. `compile_options` applies plain torch.compile to it, as a user's one line would.

        `recipe` is that of an observed script. Nothing of calls before it is left, nor another precision.
        """
        self._forget_calls()
        self._read(recipe)
        self.precision, self.workload.is_wide = None, False
        self.built = self.workload.build(None if init is None else tensors.load(init))
        if self.mode is None and not torch.is_grad_enabled():  # later ones are as the mode says
            self.settings_built = {"torch.is_grad_enabled as built": "False"}
        self.mode = mode
        self._note_parameters()
        torch.set_grad_enabled(mode == "training")
        if isinstance(self.built, torch.nn.Module) and self.built.training != (mode == "training"):
            self.built.train(mode == "training")  # else its parts are as the entry leaves them
        if compile_options is not None:
            self._compile(compile_options)
        return {"is_module": isinstance(self.built, torch.nn.Module)}

    def _read(self, recipe):
        self.workload = self.workload or forms.read(self.tree, self.entry)
        if recipe is not None:
            self.workload.recipe = recipe
        return self.workload

    def _compile(self, options):
        if not isinstance(self.built, torch.nn.Module):
            self.built = torch.compile(self.built, **options)
            return
        for module, method in self.workload.called(self.built):
            if method:
                setattr(module, method, torch.compile(getattr(module, method), **options))
            else:
                module.compile(**options)

    def op_load_state(self, path):
        """Load a state dict, strictly. Floating-point tensors follow the precision in force."""
        structure, flat = tensors.Loaded(path).opened()
        state = tensors.unflatten(structure, [self._cast(t) for t in flat])
        with workload.guarded("state_rejected", self.tree):
            self.built.load_state_dict(state, strict=True)

    def op_save_state(self, path):
        tensors.save(path, dict(self.built.state_dict()))

    def _parameters(self):
        return [*self.built.parameters()] if isinstance(self.built, torch.nn.Module) else []

    def _note_parameters(self):
        """By references that do not hold a model that is let go of."""
        self.parameters = [*map(weakref.ref, self._parameters())]

    def op_transform(self, name, seed=0):
        """What a user may do to a model between calls: its results must follow."""
        self._look_at_parameters()
        with workload.guarded("transform_raised", self.tree):
            if name == "deepcopy":
                self.built = copy.deepcopy(self.built)
            elif name == "pickle":
                self.built = pickle.loads(pickle.dumps(self.built))
            elif name == "replaced":
                states.replace_some(self.built)
            elif name == "move":
                self.built._apply(torch.clone)  # what .to() does, with every storage a new one
            elif name == "shaken":
                states.shake(self.built.parameters(), seed)
            elif name in states.MEANS:
                states.change_some(self.built, name, seed)
            else:
                tensors_of = {"scale": self.built.parameters, "scale_buffers": self._saved_buffers}
                for tensor in tensors_of[name]():
                    if tensor.is_floating_point():
                        tensor.data.mul_(0.875)  # no version counts it, nor what NumPy or another library writes

    def _saved_buffers(self):
        """Those that a checkpoint has: others may be what a candidate keeps. Raises: LookupError where it has none."""
        saved = self.built.state_dict()
        if found := [buffer for name, buffer in self.built.named_buffers() if name in saved]:
            return found
        raise LookupError("it has no buffers")

    # -- one call

    def op_load(self, path):
        """Load sealed arguments, to be staged once their key is known."""
        self.loaded = tensors.Loaded(path)
        synchronize()

    def op_stage(self, path=None, key=None, how="fresh", constants=(), phase=""):
        """Load arguments, or take what was loaded, and open them where they are sealed. `how`: "fresh" tensors, or
        "inplace" into those of the last call, so that neither their addresses nor their versions tell; "strided", in
        memory of which they take a part; "other constants", with others than the constant ones.

        `constants` names the arguments (positions or keywords) whose tensors stay the same objects from call to call.
        """
        loaded, self.loaded = self.loaded if path is None else tensors.Loaded(path), None
        structure, flat = loaded.opened(key)
        flat = [self._cast(t) for t in flat]
        kept_structure, kept = self.staged
        if how == "inplace" and tensors.layout(kept_structure) == tensors.layout(structure) and self._alike(kept, flat):
            for old, new in zip(kept, flat, strict=True):
                old.data.copy_(new)
            flat = kept
        elif how in (values.STRIDED, values.ROWS_APART):
            flat = [values.in_another_place(t, how) for t in flat]
        self.staged = (structure, flat if how in ("fresh", "inplace") else [])  # nothing else is put in such places
        case = phase, tuple((tuple(t.shape), t.dtype) for t in flat)
        given, self.arguments_before = tensors.unflatten(structure, flat), self.arguments
        self.arguments = given if how == values.OTHER_CONSTANTS else self._keep_constants(given, constants, case)
        self.phase = phase
        self._reset()

    def _reset(self):
        """What a call leaves behind may be a cache that is full, or longer than it was."""
        with workload.guarded("call_raised", self.tree):
            self.workload.reset(self.phase, self.built)
        synchronize()

    def _alike(self, kept, flat):
        return len(kept) == len(flat) and all(
            a.shape == b.shape and a.dtype == b.dtype and a.device == b.device for a, b in zip(kept, flat, strict=True)
        )

    def _keep_constants(self, arguments, names, key):
        if not names:
            return arguments
        held = self.constants.setdefault(key, {})
        items = arguments.items() if isinstance(arguments, dict) else enumerate(arguments)
        merged = {name: held.setdefault(name, item) if name in names else item for name, item in items}
        return merged if isinstance(arguments, dict) else tuple(merged.values())

    def _cast(self, tensor):
        if not self.precision or not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        return tensor.to(self.precision.to_complex() if tensor.is_complex() else self.precision)

    def op_call(self, key, as_written=False):
        """Call, wait for the device, and answer with the digest: that answer stops the host's clock. `as_written` is
        without compiled code.
        """
        with workload.guarded("call_raised", self.tree), _stance("force_eager") if as_written else nullcontext():
            self._start()
            digest = Digest(self.result[1], key)  # while the device still works
            synchronize()
        return {"digest": digest.digits()}

    def op_call_plainly(self, key, asks="results"):
        """The same, but what there is no compiled code for runs as it is written. The result is what is asked for:
        "results", "gradients", or "choices", the values from which integers are chosen.
        """
        start = {"results": self._start, "gradients": self._start_backward, "choices": self._start_choosing}[asks]
        before = process_state.stir()
        with workload.guarded("call_raised", self.tree), _compiling_nothing():
            start()
        self.drew |= {name for name, now in process_state.stand().items() if now != before.get(name, now)}
        with workload.guarded("call_raised", self.tree):
            said = Digest(self.result[1], key)
            synchronize()
        return {"digest": said.digits()}

    def op_call_together(self, key, rounds):
        """Two threads call plainly and at once, so many times, one with the arguments staged last and one with those
        before. The result is what each got: two things, which differ if any did.
        """
        with workload.guarded("call_raised", self.tree), _compiling_nothing():
            function = self.workload.method(self.phase, self.built)
            calls = [partial(_call, function, given) for given in (self.arguments_before, self.arguments)]
            self.result = tensors.flatten(together.run(calls, rounds, torch.is_grad_enabled()))
            said = Digest(self.result[1], key)
            synchronize()
        return {"digest": said.digits()}

    def op_refused(self):
        """Call plainly: the classes of what is raised, the nearest first; none where it answers."""
        try:
            with _compiling_nothing():
                self._run()
        except Exception as error:  # whatever it is, it is the answer
            synchronize()
            return {"raised": [kind.__name__ for kind in type(error).__mro__[:-2]]}
        return {"raised": []}

    def _run(self):
        self._start()
        synchronize()

    def _start(self):
        """Call; on a device its work may still go on."""
        function = self.workload.method(self.phase, self.built)
        out = _call(function, self.arguments)
        state = self.workload.phase_value(self.phase, "state")
        self.result = tensors.flatten((out, state()) if state else out)

    def _start_backward(self):
        """Call, and go back from a sum of all results. The result are the gradients, see `gradients.back`."""
        given = [each for each in tensors.flatten(self.arguments, once=True)[1] if each.is_floating_point()]
        held = {name: each for name, each in self.built.named_parameters() if _may_learn(each)}
        frozen = [each for each in held.values() if not each.requires_grad]
        try:
            with torch.enable_grad():
                for each in (*given, *frozen):
                    each.requires_grad_(True)
                self._start()
                if not torch.is_grad_enabled():
                    self.settings_built["torch.is_grad_enabled after a call"] = "False"
                    torch.set_grad_enabled(True)
                self.result = tensors.flatten(gradients.back(self.result[1], given, held))
        finally:
            for each in (*given, *frozen):
                each.requires_grad_(False)

    def _start_choosing(self):
        """Where nothing is to be seen, as of what does not run while it is watched, there is nothing in the result."""
        with suppress(Exception), choices.Choices() as chosen:
            self._start()
        self.result = tensors.flatten(chosen.given)

    def op_save(self, path):
        tensors.save_flat(path, *self.result, borrowed=self._borrowed())

    def _borrowed(self):
        """For each tensor of the result, what it shares memory with: what changes one changes the other."""
        owners = {}
        for index, argument in enumerate(tensors.flatten(self.arguments)[1]):
            owners.setdefault(storage(argument), f"argument {index}")
        if isinstance(self.built, torch.nn.Module):
            for held in (*self.built.parameters(), *self.built.buffers()):
                owners.setdefault(storage(held), "a weight or buffer")
        owners.pop(None, None)
        outs, found = self.result[1], []
        for at, tensor in enumerate(outs):
            shared = (f"output {before}" for before in range(at) if overlap(outs[before], tensor))
            found.append(owners.get(storage(tensor)) or next(shared, ""))
        return found

    def op_save_arguments(self, path):
        tensors.save(path, self.arguments, once=True)

    def op_poison(self):
        """Overwrite what the last call returned, and fill freed device memory with NaN, so that stale data shows.

        Not what the model goes on with: a cache that is masked by position has every right to hold old numbers.
        """
        self.op_collect()
        live = self._live() if self.result[1] else set()
        for tensor in self.result[1]:
            if storage(tensor) not in live and not is_spread(tensor):
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.fill_(float("nan") if tensor.is_floating_point() else 0)
        self.result = (None, [])
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            blocks = [torch.full((1 << k,), float("nan"), device="cuda") for k in range(7, 27) for _ in range(4)]
            del blocks
        synchronize()

    def _live(self):
        """Where the memory of parameters, buffers, the declared state and constant arguments is."""
        held = [*self.constants.values()]
        if isinstance(self.built, torch.nn.Module):
            held += [*self.built.parameters(), *self.built.buffers()]
        state = self.workload.phase_value(self.phase, "state")
        if state:
            with workload.guarded("call_raised", self.tree):
                held.append(state())
        return {storage(tensor) for tensor in tensors.flatten(held)[1]} - {None}

    def op_collect(self):
        """Free what only cycles hold. What torch.compile leaves behind takes 0.2 s, once, at any later call."""
        gc.collect()

    def op_compiled(self):
        """What torch.compile made so far: graphs, the places where it gave up and went on in Python, and code that it
        compiled once more because something differed from what it had compiled for. Why calls are not recorded."""
        utils = sys.modules.get("torch._dynamo.utils")
        counters = getattr(utils, "counters", {})
        # where it went on in the same function, and where it left a function, or what calls it, to Python
        breaks = {**counters.get("unimplemented", {}), **counters.get("graph_break", {})}
        graphs = int(counters.get("stats", {}).get("unique_graphs", 0))
        again = [m.recompile_reason for m in utils.get_compilation_metrics() if m.recompile_reason] if graphs else []
        return {
            "graphs": graphs,
            "graph_breaks": sum(breaks.values()),
            "reasons": _first_lines(breaks),
            "recompiles": len(again),
            "recompile_reasons": _first_lines(again),
            "not_recorded": _first_lines(_given_up()),
        }

    def op_memory(self):
        """The most memory of the device that this process has held so far, in bytes."""
        if torch.cuda.is_initialized():
            return {"peak_bytes": torch.cuda.max_memory_reserved()}
        return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}

    def op_tripwires(self):
        """What of clocks, synchronisation and the guest itself is not what it was before the target was loaded."""
        return {"changed": tripwires.changed(self.identities)}

    def op_settings(self):
        """What of the process is not as it was before the target was loaded, and whose random numbers calls have drawn,
        or begun anew."""
        self._look_at_parameters()
        if any(each.grad is not None for each in self._parameters()):
            self.settings_built["the gradients in .grad"] = "what a call left"
        changed = process_state.changed(self.settings)
        return {"changed": {**changed, **self.settings_built}, "drew": sorted(self.drew)}

    def _look_at_parameters(self):
        """Those that an optimizer was given before the first call are those that learn; until a user changes them."""
        if self.parameters is not None and [id(each()) for each in self.parameters] != [*map(id, self._parameters())]:
            self.settings_built["the parameters of the model"] = "others, made in a call"
        self.parameters = None

    def op_as_built(self, key):
        """What a checkpoint does not restore: parameters in their order and whether each learns, and the numbers that
        the model begins with.
        """
        learns = {name: each.requires_grad for name, each in self.built.named_parameters()}
        state = {name: each for name, each in self.built.state_dict().items() if isinstance(each, torch.Tensor)}
        digest = Digest([*state.values()], key)
        synchronize()
        return {"learns": learns, "state": [*state], "digest": digest.digits()}


def _call(function, arguments):
    return function(**arguments) if isinstance(arguments, dict) else function(*arguments)


def _may_learn(parameter):
    return parameter.is_floating_point() and not parameter.is_inference()


def _compiling_nothing():
    """Each function is looked up meanwhile, which takes a while: not where calls are timed."""
    return _stance("eager_on_recompile")


def _stance(name):
    dynamo = sys.modules.get("torch._dynamo")
    set_stance = getattr(torch.compiler, "set_stance", None)  # of torch 2.6
    return nullcontext() if dynamo is None or set_stance is None else set_stance(name)


def _given_up():
    """What `graphed.py` says that changes brought along, in whichever package of the target's it lies."""
    ours = [module for name, module in sys.modules.items() if name.endswith(f"{OURS}.graphed")]
    return [why for module in ours for why in getattr(module, "given_up", ())]


def _first_lines(reasons):
    """Of a few that differ."""
    return list(dict.fromkeys(str(reason).strip().partition("\n")[0][:200] for reason in reasons))[:3]
