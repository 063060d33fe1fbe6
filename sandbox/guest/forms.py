"""Which form an entry has: declared, KernelBench, or any other script, which is observed.

Its source tells, so that a script is not run to find out; where names come in by a star, it has to be.
"""

from __future__ import annotations

import ast
import os

from . import overlay
from .script import Observed
from .workload import Declared, KernelBench, load_entry

NAMES = ("build", "inputs", "phases", "Model", "get_inputs", "get_init_inputs")


def read(tree, entry):
    """The workload of an entry, with its changed copies of library modules in place. Raises: WorkloadProblem."""
    overlay.install(tree, entry)
    with open(os.path.join(tree, entry), "rb") as file:
        names = _names(file.read())
    declared = names is not None and "build" in names and not names.isdisjoint({"inputs", "phases"})
    if names is None or declared or {"Model", "get_inputs"} <= names:
        module = load_entry(tree, entry)
        given = callable(getattr(module, "inputs", None)) or hasattr(module, "phases")
        if given and callable(getattr(module, "build", None)):
            return Declared(module, tree)
        if isinstance(getattr(module, "Model", None), type) and callable(getattr(module, "get_inputs", None)):
            return KernelBench(module, tree)
        names = {name for name in NAMES if hasattr(module, name)}
    return Observed(tree, entry, [name for name in NAMES if name in names])


def _names(source):
    """What a file binds at its top level; None where that cannot be told from its source."""
    try:
        left = list(ast.parse(source).body)
    except (SyntaxError, ValueError):
        return None
    found = set()
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound = {alias.asname or alias.name for alias in node.names}
            if "*" in bound:
                return None
            found |= bound
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            handlers = [part for handler in getattr(node, "handlers", ()) for part in handler.body]
            left += [*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ()), *handlers]
        else:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found
