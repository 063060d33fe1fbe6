"""The workload of an entry that declares it: form 1 (declared) or form 2 (KernelBench).

Does not guess: what does not hold to its form is a `WorkloadProblem`. Form 3, any script, is in `script.py`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import socket
import sys
import traceback

import torch

_UNREACHABLE = frozenset([errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ECONNREFUSED])
_SAYINGS = """
ConnectError ConnectionError LocalEntryNotFoundError NameResolutionError NewConnectionError OfflineModeIsEnabled
"""
_NO_CONNECTION = frozenset(_SAYINGS.split())


class WorkloadProblem(Exception):
    """Something is wrong with the entry; `kind` is one of the names `tools/errors.py` knows."""

    def __init__(self, kind, message, where=""):
        super().__init__(message)
        self.kind, self.message, self.where = kind, message, where


def load_entry(tree, entry):
    """Execute the entry as a module named like its file (so not as `__main__`)."""
    path = os.path.join(tree, entry)
    name = os.path.splitext(os.path.basename(entry))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with guarded("entry_raised", tree):
        spec.loader.exec_module(module)
    return module


class guarded:
    """Turn what the target raises into a WorkloadProblem that says where."""

    def __init__(self, kind, tree):
        self.kind, self.tree = kind, tree

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None or isinstance(error, (WorkloadProblem, KeyboardInterrupt, GeneratorExit)):
            return False
        if isinstance(error, SystemExit):
            raise WorkloadProblem(exit_kind(error), f"it called sys.exit({error.code!r})", _where(trace, self.tree))
        if isinstance(error, torch.OutOfMemoryError):
            raise WorkloadProblem("out_of_memory", str(error).splitlines()[0], _where(trace, self.tree))
        if isinstance(error, MemoryError):
            raise WorkloadProblem("out_of_memory", "it asked for more memory than it may use", _where(trace, self.tree))
        text = _both_ends("".join(traceback.format_exception_only(type(error), error)).strip())
        if "torch.distributed" in text:  # it wants RANK and WORLD_SIZE, which only a launcher sets
            raise WorkloadProblem("several_ranks", text.splitlines()[-1], _where(trace, self.tree)) from error
        kind = "no_network" if self.kind.endswith("_raised") and _wants_network(error) else self.kind
        raise WorkloadProblem(kind, text, _where(trace, self.tree)) from error


def _both_ends(text, most=2000):
    """A compilation that fails says first what failed, and then how to report it; other errors end with the cause."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def _wants_network(error):
    """Whether it comes from a connection that could not be made; libraries say so in many ways."""
    for _ in range(16):
        if isinstance(error, socket.gaierror) or type(error).__name__ in _NO_CONNECTION:
            return True
        if isinstance(error, OSError) and error.errno in _UNREACHABLE:
            return True
        error = error.__cause__ or error.__context__
        if error is None:
            return False
    return False


def exit_kind(error):
    """An exit with status 0 before there is a result has its own kind: it could pass for success."""
    return "exited_as_success" if error.code in (None, 0) else "entry_exited"


def _where(trace, tree):
    """The innermost frame inside the target, as file:line."""
    root, found = os.path.realpath(tree) + os.sep, ""
    for frame in traceback.extract_tb(trace):
        path = os.path.realpath(frame.filename)
        if path.startswith(root):
            found = f"{path[len(root) :]}:{frame.lineno}"
    return found


@contextlib.contextmanager
def seeded(seed):
    """torch's generators from a seed, and afterwards as they were: what is random in a call must show as such."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


class Workload:
    """What these forms answer. Phases and shapes span the cases; each case is judged."""

    form = ""
    recipe = None  # of an observed script: how far it must run
    is_wide = False  # while it is built in another type than its own

    def __init__(self, module, tree):
        self.module, self.tree = module, tree
        self.mode = getattr(module, "mode", "inference")
        if self.mode not in ("inference", "training"):
            raise WorkloadProblem("bad_declaration", f"mode is {self.mode!r}; it may be 'inference' or 'training'")

    def optional(self, name):
        found = getattr(self.module, name, None)
        return found if callable(found) else None

    def cases(self):
        """[{"phase", "shape"}]; one with an empty shape when nothing is declared."""
        return [{"phase": "", "shape": {}}]

    def notes(self):
        """What a person should know of how the entry was read."""
        return []

    def declared_phases(self):
        return {}

    def phase_value(self, phase, name):
        """`name` from the phase's own declaration, else from the entry."""
        found = self.declared_phases().get(phase, {}).get(name)
        return found if found is not None else self.optional(name)

    def reset(self, phase, target):
        """What calls hand on begins again."""
        declared = self.phase_value(phase, "reset")
        if declared:
            declared()

    def called(self, target):
        """[(module, method)] of all that is called; the method is empty where the module itself is."""
        names = {phase.get("method", "") for phase in self.declared_phases().values()} or {""}
        return [(target, name) for name in sorted(names)]

    def method(self, phase, target):
        """What a call of this phase calls: the callable itself, or the method the phase names."""
        name = self.declared_phases().get(phase, {}).get("method")
        return getattr(target, name) if name else target


class Declared(Workload):
    """build(), inputs(seed), and the optional names of the contract."""

    form = "declared"
    name = ""  # of the method that build() returned

    def build(self, init=None):
        with guarded("build_raised", self.tree):
            built = self.module.build()
        if not callable(built):
            raise WorkloadProblem("bad_declaration", f"build() returned {type(built).__name__}, not a callable")
        owner = getattr(built, "__self__", None)
        if isinstance(owner, torch.nn.Module):  # a bound method of a model
            self.name, built = built.__name__, owner
        return built

    def init_inputs(self):
        return None

    def declared_phases(self):
        phases = getattr(self.module, "phases", None)
        return (phases() if callable(phases) else phases) or ({"": {"method": self.name}} if self.name else {})

    def cases(self):
        found = []
        with guarded("bad_declaration", self.tree):
            for phase in self.declared_phases() or {"": {}}:
                if self.phase_value(phase, "inputs") is None:
                    what = f"phase {phase!r} has no inputs, and the entry no inputs(seed)"
                    raise WorkloadProblem("bad_declaration", what)
                shapes = self.phase_value(phase, "shapes")
                found += [{"phase": phase, "shape": dict(shape)} for shape in (shapes() if shapes else [{}])]
        if not found:
            raise WorkloadProblem("bad_declaration", "shapes() returned nothing")
        return found

    def inputs(self, phase, shape, seed):
        with guarded("inputs_raised", self.tree), seeded(seed):
            return arguments(self.phase_value(phase, "inputs")(seed, **shape))


class KernelBench(Workload):
    """Model, get_inputs() and get_init_inputs(); inputs vary by the seed of torch's generator."""

    form = "kernelbench"

    def build(self, init=None):
        init = self.init_inputs() if init is None else init
        with guarded("build_raised", self.tree), seeded(0):
            return self.module.Model(*init).to(device())

    def init_inputs(self):
        make = self.optional("get_init_inputs")
        with guarded("inputs_raised", self.tree), seeded(0):
            return list(make()) if make else []

    def inputs(self, phase, shape, seed):
        with guarded("inputs_raised", self.tree), seeded(seed):
            drawn = arguments(self.module.get_inputs())
        return tuple(x.to(device()) if isinstance(x, torch.Tensor) else x for x in drawn)


def arguments(value):
    """Positional arguments as a tuple, or keyword arguments as a dict."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (tuple, list)):
        return tuple(value)
    if isinstance(value, torch.Tensor):
        return (value,)
    raise WorkloadProblem("bad_declaration", f"inputs are {type(value).__name__}; return a tuple or a dict")
