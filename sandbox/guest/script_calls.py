"""Watch the calls of outermost modules while a script runs: record them, or stop the script when it has made enough.

A module is outermost while no other module's call is running. Where a script enters a module by another method
(`generate`, `forward_with_cfg`, `forward` itself), its module calls show on the stack through which: a second run of
the script watches that method. What is watched is given back as it was.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import sys
import threading
import time
import types
import weakref

import torch

from .digest import Digest
from .lookups import Lookups, is_integer, named_by
from .on_device import synchronize
from .script_values import PLAIN, Looks, Ref, Tensor, at, holds_tensors, parts_of, rebuilt
from .tensors import is_plain
from .workload import WorkloadProblem

MOST_CALLS = 512
MOST_S = 60.0  # after the first call
MOST_CALL_S = 1.0  # of a method that can be judged by the calls below it


class Stop(BaseException):
    """Ends a script from inside a call; not an Exception, which scripts catch."""


def _stopped():
    """What ends a script, or a thread of it, which goes without a word only so."""
    return Stop() if threading.current_thread() is threading.main_thread() else SystemExit()


class _Watcher:
    """Stands in for `torch.nn.Module.__call__`, and for some other `methods`, each a class and a name; inside of a call
    it does not, so that compilers find there what they know.

    What torch.compile wraps keeps the function that it found, and then that one only passes on. So does a call of
    another thread than the first that makes one, and a call that is traced.
    """

    def __init__(self, methods=()):
        self._methods = frozenset(map(tuple, methods))
        self._thread, self.elsewhere = None, False  # whether other threads make calls, too

    def __enter__(self):
        self._passes_on, self._replaced = False, []
        self._original = torch.nn.Module.__call__
        self._ours = self._standing_in(self._original, None)
        self._replace(torch.nn.Module, "__call__", self._ours)
        if self._methods:
            self._replace(torch.nn.Module, "__init__", self._making(torch.nn.Module.__init__))
        return self

    def __exit__(self, *error):
        while self._replaced:
            setattr(*self._replaced.pop())
        self._passes_on = True
        return False

    def call(self, plain, module, args, kwargs):
        """(what comes out, seconds): to stand aside takes more of them than a small module does."""
        torch.nn.Module.__call__, self._passes_on = self._original, True
        try:
            synchronize()
            start = time.perf_counter()
            out = plain(module, *args, **kwargs)
            synchronize()
            return out, time.perf_counter() - start
        finally:
            torch.nn.Module.__call__, self._passes_on = self._ours, False

    def _standing_in(self, plain, method):
        @functools.wraps(plain)
        def call(module, *args, **kwargs):
            if self._passes_on or torch.jit.is_tracing():
                return plain(module, *args, **kwargs)
            self._thread = self._thread or threading.get_ident()
            if self._thread != threading.get_ident():
                self.elsewhere = True
                return plain(module, *args, **kwargs)
            return self.outermost(plain, module, method, args, kwargs)

        return call

    def _making(self, plain):
        """Before there is a module of a class its methods are replaced: a script may hand them on bound."""

        @functools.wraps(plain)
        def init(module, *args, **kwargs):
            for owner in type(module).__mro__:
                for of, name in self._methods:
                    if of == name_of(owner) and not any(each[:2] == (owner, name) for each in self._replaced):
                        self._replace(owner, name, self._standing_in(vars(owner)[name], (of, name)))
            plain(module, *args, **kwargs)

        return init

    def _replace(self, owner, name, function):
        self._replaced.append((owner, name, vars(owner)[name]))
        setattr(owner, name, function)


def name_of(owner):
    return f"{owner.__module__}:{owner.__qualname__}"


class Call:
    """One call of an outermost module: its arguments by position or name, and which calls before it it builds on.

    `method` is empty where the module itself is called; `above` are the methods through which that came about, the
    outermost last.
    """

    def __init__(self, number, module, method, above):
        self.number, self.module, self.method, self.above = number, module, method, above
        self.arguments, self.links, self.seconds = {}, set(), 0.0
        self.wrote = ()  # names of the module's buffers
        self.learns = module.training, torch.is_grad_enabled()
        self.autocast = {
            device: str(torch.get_autocast_dtype(device)).removeprefix("torch.")
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        }


class Recorder(_Watcher):
    """Records every call, in order. Keeps the objects that are handed over, so that none has the id of another."""

    def __init__(self, methods=()):
        super().__init__(methods)
        self.calls, self.problem, self.trained, self.cut_short = [], None, False, False
        self.unfit = {}  # method -> why its calls cannot be judged
        self.entered = set()  # methods
        self._begun = None
        self._objects = {}  # id -> (object, where it was seen first: ("arg" or "out", call, *path))
        self._tensors = {}  # id -> (weak reference, the same)
        self._looks = {}  # (id, what tells its contents apart) of a tensor -> (weak reference, `Looks`)
        self._integers = []  # (tensor, `Looks`) of those that the call at hand was given
        self._lookups = Lookups(self._looked_up)

    def __enter__(self):
        self._backward = torch.autograd.backward

        def backward(*args, **kwargs):
            self.trained = True
            return self._backward(*args, **kwargs)

        torch.autograd.backward = backward
        self._lookups.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        torch.autograd.backward = self._backward
        self._lookups.__exit__(*error)
        return super().__exit__(*error)

    @property
    def satisfied(self):
        """Whether it saw what it is there for: a call that ended."""
        return any(call.seconds for call in self.calls)

    def failed(self, problem):
        """What the script raised; it counts only where nothing was recorded before."""
        self.problem = problem
        if not self.satisfied:
            raise problem

    def outermost(self, plain, module, method, args, kwargs):
        self._begun = self._begun or time.monotonic()
        if len(self.calls) >= MOST_CALLS or time.monotonic() - self._begun > MOST_S:
            self.cut_short = True
            raise _stopped()
        above = () if self._methods else methods_above(module, sys._getframe(2))
        call, self._integers = Call(len(self.calls), module, method[1] if method else "", above), []
        try:
            for name, value in _named(args, kwargs).items():
                call.arguments[name] = self._seen(value, ("arg", call.number, name), call)
        except WorkloadProblem as problem:
            if method is None:
                raise
            self.unfit[method] = problem.message
            return self.call(plain, module, args, kwargs)[0]
        self.entered.add(method)
        self.calls.append(call)
        before = {} if module.training else buffer_versions(module)
        drawn = _generators()
        out, call.seconds = self.call(plain, module, args, kwargs)
        call.wrote = [name for name, now in buffer_versions(module).items() if before.get(name, now) != now]
        self._given_out(out, ("out", call.number))
        if method and (why := self._why_unfit(call, out, drawn)):
            self.unfit[method] = why
        return out

    def _why_unfit(self, call, out, drawn):
        """To be judged as a whole, rather than by the calls below it."""
        if any(not torch.equal(one, other) for one, other in zip(drawn, _generators(), strict=True)):
            return "draws random numbers"
        if call.seconds > MOST_CALL_S:
            return f"takes {call.seconds:.0f} s"
        return "" if _holds_numbers(out) else "returns no floating-point numbers"

    def _seen(self, value, where, call):
        """A nesting of `Tensor`, `Ref` and plain values that says what was given."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, where, call)
        if isinstance(value, PLAIN):
            return value
        parts = parts_of(value)
        is_filled_by_calls = isinstance(value, (dict, list)) and (not value or id(value) in self._objects)
        if parts is not None and not is_filled_by_calls:
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
        looks = self._looks_of(value, _contents(value, is_counted=first[0] == "out" and not value.is_inference()))
        if is_integer(value):
            self._integers.append((value, looks))
        return Tensor(first, looks)

    def _looked_up(self, index, rows):
        for number in named_by(index, [value for value, _ in self._integers]):
            looks = self._integers[number][1]
            if not looks.rises:
                looks.rows = min(rows, looks.rows or rows)

    def _looks_of(self, value, contents):
        """The same `Looks` as long as the same tensor holds the same."""
        key = (id(value), contents)
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
        super().__init__(recipe["methods"])
        self.root, self.objects, self._found, self._number = None, {}, {}, -1
        self._roots, self._wanted = recipe["roots"], [(int(ref[0]), ref[1:]) for ref in recipe["objects"]]
        self._last = max([*self._roots.values(), *(number for number, _ in self._wanted)])

    @property
    def satisfied(self):
        return self.root is not None

    def failed(self, problem):
        raise problem

    def outermost(self, plain, module, method, args, kwargs):
        self._number += 1
        if self._number > self._last:
            raise _stopped()
        for number, path in self._wanted:
            if number == self._number:
                place = (str(number), *path)
                self.objects[place] = Handed(at(_named(args, kwargs), path))
        for name, number in self._roots.items():
            if number == self._number:
                self._found[name] = module
        if len(self._found) == len(self._roots) and self.root is None:
            self.root = together(self._found)
        if self._number == self._last:
            raise _stopped()
        return self.call(plain, module, args, kwargs)[0]


class Together(torch.nn.Module):
    """Several modules that a script calls, by name."""


def together(modules):
    """One module: the only one there is, or all of them in a `Together`."""
    if len(modules) == 1:
        return next(iter(modules.values()))
    found = Together()
    for name, module in modules.items():
        found.add_module(name, module)
    found.training = any(module.training for module in modules.values())
    return found


class Handed:
    """An object that a script gives its calls, as it is now: the script's own, since hooks may fill it, too."""

    def __init__(self, value):
        self._own, self._kept = value, copy.deepcopy(value, _but_modules())

    def begin_again(self):
        """The object, with in it what was in it."""
        fresh, own = copy.deepcopy(self._kept, _but_modules()), self._own
        if type(own) is dict:
            own.clear()
            own.update(fresh)
        elif type(own) is list:
            own[:] = fresh
        elif type(own).__setattr__ is object.__setattr__ and hasattr(own, "__dict__") and not isinstance(own, dict):
            vars(own).clear()
            vars(own).update(vars(fresh))
        else:
            return fresh
        return own


def _but_modules():
    """For `deepcopy`: modules, which may be keys, stay themselves."""
    return {id(module): module for module in modules_in_memory()}


def modules_in_memory():
    return [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]


def buffer_versions(module):
    return {name: each._version for name, each in module.named_buffers() if not each.is_inference()}


def methods_above(module, frame):
    """[(class, method)] of the modules on the stack that hold this one, the outermost last, without private ones."""
    found = []
    while frame is not None:
        code = frame.f_code
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(owner, torch.nn.Module) and any(each is module for each in owner.modules()):
            found += [(name_of(cls), code.co_name) for cls in type(owner).__mro__ if _is_method(cls, code)]
            module = owner
        frame = frame.f_back
    return tuple(found)


def _is_method(cls, code):
    function = vars(cls).get(code.co_name)
    plain = isinstance(function, types.FunctionType) and not code.co_name.startswith("_")
    return plain and inspect.unwrap(function).__code__ is code


def _generators():
    own = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [each.get_state() for each in (torch.default_generator, *own)]


def _holds_numbers(out):
    if isinstance(out, torch.Tensor):
        return out.is_floating_point() or out.is_complex()
    return any(map(_holds_numbers, (parts_of(out) or {}).values()))


def _named(args, kwargs):
    return {**{str(index): value for index, value in enumerate(args)}, **kwargs}


def _contents(value, is_counted):
    """What becomes another when a tensor is written to: NumPy, another library and `.data` write uncounted."""
    if is_counted:
        return value._version
    with torch.inference_mode(False):
        digest = Digest([value], key=0)
        synchronize()
        return digest.digits()
