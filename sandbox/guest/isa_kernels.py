"""Find the Triton kernels of a file: functions under `triton.jit`, also below `autotune` and `heuristics`.

Does not guess which one is meant. A function that others of the file call is a part of them and no kernel. Why there is
none is a `Refusal`, in words for the user and never a traceback.
"""

import ast
import importlib
import importlib.util
import os
import re
import sys
import traceback
import types
from dataclasses import dataclass, field

MOST_NAMES = 40
LONGEST = 600  # characters
_BESIDE = "_ratchet_kernels"  # the package of a file that is in none


class Refusal(Exception):
    """`kind` is one of those in `tools/isa/answer.py`; `names` are the kernels or parameters that it is about."""

    def __init__(self, kind, message="", names=()):
        super().__init__(message)
        self.kind, self.message, self.names = kind, message, list(names)

    def said(self):
        return {"kind": self.kind, "message": self.message[:LONGEST], "names": self.names[:MOST_NAMES]}


def in_one_line(error):
    """The type, the place and the reason of an error. A compiler quotes source in between, which is left out."""
    reason, first = error, ""
    while reason is not None:
        lines = [line.strip() for line in str(reason).splitlines() if line.strip(" ^")]
        if lines:
            place = re.match(r"at \d+:\d+", lines[0])
            first = first or (place.group() + ": " if place else "")
            said = f"{type(reason).__name__}: {first}{lines[-1] if place else ' '.join(lines)}"
        else:
            said = type(reason).__name__
        if reason.__cause__ is None:
            break
        reason = reason.__cause__
    return re.sub(r"\s+", " ", said)[:LONGEST]


def place_in(path, error):
    """` (line 12)` of the innermost frame in this file, or nothing."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    return f" (line {lines[-1]})" if lines else ""


@dataclass
class Kernel:
    name: str
    jit: object  # the JITFunction
    configs: list = field(default_factory=list)  # of its autotuner
    heuristics: dict = field(default_factory=dict)  # constant -> function of the arguments


def load(path):
    """The kernels of the file, by name. Runs it. Raises: Refusal."""
    from .bootstrap import _WithoutOurs

    folder, name = os.path.split(os.path.realpath(path))
    path, module = os.path.join(folder, name), name.removesuffix(".py")
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        module = f"{package}.{module}"
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, _WithoutOurs)
    try:
        if "." in module:
            loaded = importlib.import_module(module)
        else:
            # in its own package, so that `from .other import ...` finds what lies beside it
            sys.modules[_BESIDE] = types.ModuleType(_BESIDE)
            sys.modules[_BESIDE].__path__ = [folder]
            spec = importlib.util.spec_from_file_location(f"{_BESIDE}.{module}", path)
            loaded = importlib.util.module_from_spec(spec)
            sys.modules[module] = sys.modules[spec.name] = loaded
            spec.loader.exec_module(loaded)
    except (Exception, SystemExit) as error:
        raise Refusal("not_loadable", f"{in_one_line(error)}{place_in(path, error)}") from error
    return of_module(loaded, path)


def of_module(module, path):
    """Those whose source is in the file at `path`; without what it imports, and without parts of others."""
    found = {}
    for value in list(vars(module).values()):
        kernel = unwrap(value)
        if kernel is not None and os.path.realpath(kernel.jit.fn.__code__.co_filename) == path:
            found.setdefault(kernel.name, kernel)
    called = _called_by(found, path)
    return {name: kernel for name, kernel in found.items() if name not in called} or found


def unwrap(value):
    """The kernel below decorators of Triton's; None for anything else."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    configs, heuristics = [], {}
    while isinstance(value, (Autotuner, Heuristics)):
        if isinstance(value, Autotuner):
            configs = configs or list(value.configs)
        else:
            heuristics.update(value.values)
        value = value.fn
    return Kernel(value.fn.__name__, value, configs, heuristics) if isinstance(value, JITFunction) else None


def choose(kernels, wanted, *, every):
    """The one that is meant, or all of them. Raises: Refusal."""
    if not kernels:
        raise Refusal("no_kernel")
    if wanted is not None:
        if wanted not in kernels:
            raise Refusal("no_such_kernel", wanted, kernels)
        return [kernels[wanted]]
    if len(kernels) > 1 and not every:
        raise Refusal("several_kernels", "", kernels)
    return list(kernels.values())


def _called_by(kernels, path):
    """Names that the bodies of these functions mention: those they call, and what `tl.reduce` combines with."""
    with open(path, encoding="utf-8", errors="replace") as file:
        tree = ast.parse(file.read())
    named = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in kernels:
            inside = {child.id for part in node.body for child in ast.walk(part) if isinstance(child, ast.Name)}
            named |= inside - {node.name}
    return named
