"""Which module may import which: read from the source of a tree, so that imports inside functions count too.

Does not run anything. Each rule is a function from a `Tree` to the sentences that say what breaks it.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LAYERS = ("sandbox", "tools", "agent", "evals")  # each may import itself and those before it
OUTSIDE = ("torch", "triton", "transformers")  # the target's interpreter has them, ours need not
MCP = "agent/outside/server.py"
ONLY_IN = {
    "langgraph": "agent/graph.py",
    "openai": "agent/llm/",
    "docker": "sandbox/docker/engine.py",
    "mcp": MCP,
    "mcp_types": MCP,
    "uvicorn": MCP,
    "skills_ref": "agent/skill_packs/commands.py",
}
GUEST = "sandbox/guest/"
GUEST_MAY = {*sys.stdlib_module_names, "torch", "triton"}
GUEST_MAY_IF_THERE = {"sandbox/guest/suite.py": "pytest"}  # the target's own, to run the target's own tests
# Code of targets, cheats, kernel templates and images: read, copied and run elsewhere, never imported by us.
DATA = (
    "evals/calibration_target/",
    "evals/tasks/",
    "evals/red_team/cheats/",
    "evals/red_team/target/",
    "evals/red_team/users/",
    "sandbox/images/",
    "skills/",
    "tools/profiler/page_template/",
)
LONGEST_FILE = 400


@dataclass(frozen=True)
class Import:
    """One imported name, absolute: `from a.b import c` is `a.b.c`."""

    name: str
    line: int
    relative: bool
    at_start: bool  # runs when the module is imported

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Tree:
    """The Python files below `root`."""

    root: Path

    @cached_property
    def files(self) -> dict[str, ast.Module]:
        folders = (*LAYERS, "skills", "scripts", "tests")
        paths = [path for folder in folders for path in sorted((self.root / folder).rglob("*.py"))]
        return {path.relative_to(self.root).as_posix(): ast.parse(path.read_text()) for path in paths}

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        return {path: list(_imports(path, tree)) for path, tree in self.files.items()}

    def host(self) -> Iterator[tuple[str, list[Import]]]:
        """The files of the four packages that run in the agent's own interpreter."""
        for path, found in self.imports.items():
            if path.startswith(tuple(f"{layer}/" for layer in LAYERS)) and not path.startswith((*DATA, GUEST)):
                yield path, found

    def file_of(self, name: str) -> str | None:
        """The file that importing `name` runs: a module, a package, or the module that holds the name."""
        for parts in (name, name.rpartition(".")[0]):
            for path in (f"{parts.replace('.', '/')}.py", f"{parts.replace('.', '/')}/__init__.py"):
                if parts and path in self.files:
                    return path
        return None


def upward(tree: Tree) -> list[str]:
    """evals → agent → tools → sandbox, nothing the other way, and nobody imports data."""
    found = []
    for path, imports in tree.imports.items():
        layer = path.partition("/")[0]
        if layer not in LAYERS or path.startswith(DATA):
            continue
        allowed = LAYERS[: LAYERS.index(layer) + 1]
        for one in imports:
            if one.top in (*LAYERS, "skills", "scripts", "tests") and one.top not in allowed:
                found.append(f"{path}:{one.line} imports {one.name}")
            elif one.name.startswith("evals.tasks"):
                found.append(f"{path}:{one.line} imports {one.name}, which is a target")
    return found


def in_one_place(tree: Tree) -> list[str]:
    """langgraph, openai, docker and mcp each have one file or folder that may know them."""
    return [
        f"{path}:{one.line} imports {one.name}; only {ONLY_IN[one.top]} may"
        for path, imports in tree.imports.items()
        for one in imports
        if one.top in ONLY_IN and not path.startswith((ONLY_IN[one.top], "tests/"))
    ]


def outside_world(tree: Tree) -> list[str]:
    """No file of the host imports torch, triton or transformers, not even through a file of the guest."""
    found = []
    for path, imports in tree.host():
        for one in imports:
            if one.top in OUTSIDE:
                found.append(f"{path}:{one.line} imports {one.name}")
            through = _torch_below(tree, one.name)
            if through:
                found.append(f"{path}:{one.line} imports {one.name}, and {through} imports torch")
    return found


def self_contained(tree: Tree) -> list[str]:
    """The guest imports the standard library, torch, triton, and itself by relative imports."""
    found = []
    for path, imports in tree.imports.items():
        if not path.startswith(GUEST):
            continue
        for one in imports:
            inside = one.relative and one.name.startswith("sandbox.guest")
            if not inside and (one.relative or one.top not in {*GUEST_MAY, GUEST_MAY_IF_THERE.get(path)}):
                found.append(f"{path}:{one.line} imports {one.name}")
    return found


def cycles(tree: Tree) -> list[str]:
    """No module needs, while it is being imported, one that needs it."""
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for path, imports in tree.imports.items():
        if path.startswith(DATA):
            continue
        for one in imports:
            needed = tree.file_of(one.name)
            if one.at_start and needed and needed != path:
                sorter.add(path, needed)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def broad_catches(tree: Tree) -> list[str]:
    """Catching everything hides faults. It is for `agent/guard.py`; elsewhere only to clean up and raise again."""
    found = []
    for path, module in tree.files.items():
        if not path.startswith(tuple(f"{layer}/" for layer in LAYERS)) or path.startswith((GUEST, *DATA)):
            continue
        for node in ast.walk(module):
            if path != "agent/guard.py" and isinstance(node, ast.ExceptHandler) and _catches_all(node):
                found.append(f"{path}:{node.lineno} catches everything")
    return found


def too_long(tree: Tree) -> list[str]:
    lengths = {path: (tree.root / path).read_text().count("\n") for path in tree.files}
    return [f"{path} has {length} lines" for path, length in lengths.items() if length > LONGEST_FILE]


def _catches_all(handler: ast.ExceptHandler) -> bool:
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(name is None or getattr(name, "id", "") in ("Exception", "BaseException") for name in names)
    return broad and not (isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None)


def _torch_below(tree: Tree, name: str) -> str:
    """The file of the guest that imports torch when `name` is imported, or nothing."""
    waiting, seen = [tree.file_of(name)], set[str]()
    while waiting:
        path = waiting.pop()
        if path is None or path in seen or not path.startswith(GUEST):
            continue
        seen.add(path)
        starting = [one for one in tree.imports[path] if one.at_start]
        if any(one.top in OUTSIDE for one in starting):
            return path
        waiting += [tree.file_of(one.name) for one in starting]
    return ""


def _imports(path: str, tree: ast.Module) -> Iterator[Import]:
    package = path.split("/")[:-1]
    for node, at_start in _walk(tree.body, at_start=True):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, False, at_start)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(f"{module}.{alias.name}", node.lineno, node.level > 0, at_start)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            named = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
            yield from (Import(str(name), node.lineno, False, at_start) for name in named)


def _walk(body: list[ast.stmt], *, at_start: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it runs when the module is imported: functions and type checking do not."""
    waiting: list[tuple[ast.AST, bool]] = [(node, at_start) for node in body]
    while waiting:
        node, starts = waiting.pop()
        yield node, starts
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            starts = False
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += [(child, False) for child in node.body]
            waiting += [(child, starts) for child in node.orelse]
            continue
        waiting += [(child, starts) for child in ast.iter_child_nodes(node)]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
