"""Form 3: any script. It is run as `__main__`, and the calls it makes of its outermost module are made again later.

A case is a call, or a sequence of calls that hand something on: a cache that is filled, a state that comes out of one
call and goes into the next. Tensors are drawn like those that were seen; everything else is as the script gave it.
Refuses scripts that train, and those that call no module.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import types

import torch

from . import arrays
from .script_calls import Cut, Recorder, Stop
from .script_cases import REF, Recording
from .script_values import PLAIN, at, holds_tensors, parts_of, rebuilt
from .workload import Workload, WorkloadProblem, guarded


class Observed(Workload):
    """A script that was never written to be judged.

    `recipe` says how far a script must run before its module, and the objects it hands over, can be had, and which
    cases are judged; the first reference worker finds it out, and all others are told.
    """

    form = "observed"

    def __init__(self, tree, entry, defined=()):
        self.tree, self.entry, self.mode, self.defined = tree, entry, "inference", defined
        self.recording, self.recipe = None, None
        self._objects, self._live, self._plans, self._buffers = {}, {}, {}, []

    # -- what was seen

    def seen(self):
        """The script's calls, recorded once in this process."""
        if self.recording is None:
            recorder, methods, notes = self._recorded(None if self.recipe is None else self.recipe["methods"])
            self.recording = Recording.of(recorder, methods, self.defined, self.recipe)
            self.recording.notes += notes
            self.recipe = self.recipe or self.recording.recipe
        return self.recording

    def _recorded(self, methods):
        """(recorder, methods that it watched, notes). Where none are `known`, the outermost that can be judged."""
        recorder = Recorder(methods or ())
        self._run(recorder)
        if methods is not None or recorder.trained:
            return recorder, methods or (), []
        unfit = {}
        while wanted := {fit[-1] for call in recorder.calls if (fit := [m for m in call.above if m not in unfit])}:
            outer = Recorder(wanted)
            self._run(outer)
            unfit |= dict.fromkeys(wanted - outer.entered, "") | outer.unfit  # some may be called by another name
            if unfit.keys().isdisjoint(wanted):
                return outer, sorted(wanted), _told(unfit)
        return recorder, (), _told(unfit)

    def cases(self):
        return [{"phase": label, "shape": {}} for label in self.seen().cases]

    def notes(self):
        return self.seen().notes

    def optional(self, name):
        return self.seen().constants if name == "constants" and self.recording and self.recording.constants() else None

    def init_inputs(self):
        return None

    def inputs(self, phase, shape, seed):
        if phase not in self.seen().cases:
            raise WorkloadProblem("not_deterministic", f"another run of the script makes no calls like {phase!r}")
        return self.recording.draw(phase, seed)

    # -- its module, and its calls made again

    def build(self, init=None):
        recipe = self.recipe or self.seen().recipe
        cut = Cut(recipe)
        self._run(cut)
        if cut.root is None:
            raise WorkloadProblem("not_deterministic", "another run of the script does not get as far as its module")
        _out_of_inference(cut.root)
        self._objects, buffers = cut.objects, dict(cut.root.named_buffers())
        self._buffers = [(name, buffers[name].clone()) for name in recipe["buffers"] if name in buffers]
        self.reset("", cut.root)
        return cut.root

    def reset(self, phase, target):
        """As it was when the script made it."""
        self._live = {place: each.begin_again() for place, each in self._objects.items()}
        now = dict(target.named_buffers()) if self._buffers else {}
        with torch.no_grad():
            for name, kept in self._buffers:
                if name in now:
                    now[name].copy_(kept)

    def called(self, target):
        return [_at(target, place) for place in (self.recipe or self.seen().recipe)["called"]]

    def method(self, phase, target):
        def replay(**arguments):
            outs = []
            with self._autocast():
                for place, positional, keywords in self._plan(arguments):
                    module, method = _at(target, place)
                    called = getattr(module, method) if method else module
                    given = [self._value(arguments[name], outs) for name in positional]
                    named = {key: self._value(arguments[name], outs) for key, name in keywords}
                    outs.append(called(*given, **named))
            answers = tuple(_answer(out) for out in outs)
            return answers if len(answers) > 1 else answers[0]

        return replay

    def _autocast(self):
        """That of the script; none in a wider type than the target's own, which would be lost in it."""
        stack = contextlib.ExitStack()
        for device, dtype in () if self.is_wide else self.recipe["autocast"].items():
            stack.enter_context(torch.autocast(device, getattr(torch, dtype)))
        return stack

    def _plan(self, arguments):
        """[(`PATH` or `PATH:METHOD`, names of positional arguments, (keyword, name) of the others)], step by step.

        Names are `CASE.STEP`, whose value is that place, and `CASE.STEP.ARGUMENT`.
        """
        names = tuple(arguments)
        if names not in self._plans:
            steps = []
            for name in names:
                _, _, rest = name.partition(".")
                _, _, argument = rest.partition(".")
                if not argument:
                    steps.append((arguments[name], [], []))
                elif argument.isdigit():
                    steps[-1][1].append(name)
                else:
                    steps[-1][2].append((argument, name))
            self._plans[names] = steps
        return self._plans[names]

    def _value(self, value, outs):
        """With what earlier steps gave out, and with this worker's own objects, in the place of references to them."""
        if isinstance(value, str) and value.startswith(REF):
            kind, *place = json.loads(value.removeprefix(REF))
            return at(outs[int(place[0])], place[1:]) if kind == "out" else self._live[tuple(place)]
        if isinstance(value, (torch.Tensor, *PLAIN)):
            return value
        return rebuilt(value, {key: self._value(item, outs) for key, item in parts_of(value).items()})

    def _run(self, watcher):
        path = os.path.join(self.tree, self.entry)
        module = types.ModuleType("__main__")
        module.__file__ = path
        sys.modules["__main__"], sys.argv = module, [path]
        with open(path, "rb") as file, guarded("entry_raised", self.tree):
            code = compile(file.read(), path, "exec")
        with watcher:
            try:
                with guarded("entry_raised", self.tree):
                    _execute(code, module, watcher)
            except WorkloadProblem as problem:
                watcher.failed(problem)


def _at(target, place):
    path, _, method = place.partition(":")
    return target.get_submodule(path) if path else target, method


def _told(unfit):
    why = {f"{of.rpartition(':')[2]}.{name}": why for (of, name), why in unfit.items() if why}
    return [f"{method} {each}: the calls below it are judged" for method, each in why.items()]


def _execute(code, module, watcher):
    try:
        exec(code, module.__dict__)  # the target's own script, in its own process
    except Stop:
        pass
    except SystemExit as end:  # how many a script ends, after its work
        if end.code not in (None, 0) or not watcher.satisfied:
            raise


def _out_of_inference(root):
    """Parameters and buffers that were made in inference mode refuse another state dict; equal ones take one."""
    again = {}
    for module in root.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in list(held.items()):
                if tensor is not None and tensor.is_inference():
                    if id(tensor) not in again:
                        again[id(tensor)] = copy.deepcopy(tensor)
                    setattr(module, name, again[id(tensor)])  # recurrent layers keep lists of theirs


def _answer(out):
    """What counts of a result: not the objects in it that hold a state, which shows in the results of later calls. An
    object that is the whole result counts by its attributes, where it has tensors.
    """
    if _parts(out) is None and hasattr(out, "__dict__") and not callable(out):
        attributes = {name: item for name, item in vars(out).items() if _counts(item)}
        if holds_tensors(attributes):
            return _counted(attributes)
    return _counted(out)


def _counted(out):
    if isinstance(out, (torch.Tensor, *PLAIN)) or _is_value(out):
        return out
    return {key: _counted(item) for key, item in (_parts(out) or {}).items() if _counts(item)}


def _counts(item):
    return isinstance(item, (torch.Tensor, *PLAIN)) or _is_value(item) or _parts(item) is not None


def _is_value(item):
    return isinstance(item, (set, frozenset)) or arrays.is_array(item) or arrays.is_number(item)


def _parts(out):
    return dict(out) if isinstance(out, dict) else parts_of(out)
