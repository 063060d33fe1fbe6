"""The gate for Triton candidates: every kernel compiles for every architecture, and without spills or scratch.

A candidate's kernels are described by their launches when the entry runs, else by their annotations. What neither
describes is not refused: the result lists it as not looked at.

Does not judge speed, and is no security boundary: a file that is loaded can change what its own compiler says of it, so
passing only means that an honest kernel has no such fault.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path

from tools.diff.patch import changed_paths
from tools.errors import KernelNotCompiled
from tools.isa.compile import Compilations, Compiled, Compiler, Source


@dataclass(frozen=True)
class Looked:
    """The kernels of a candidate: `faults` keep it from being used, `looked_at` are those without any."""

    faults: tuple[str, ...] = ()
    looked_at: tuple[str, ...] = ()
    not_looked_at: tuple[str, ...] = ()

    def evidence(self) -> dict[str, list[str]]:
        parts = {"faults": self.faults, "looked_at": self.looked_at, "not_looked_at": self.not_looked_at}
        return {name: list(found) for name, found in parts.items() if found}


@dataclass(frozen=True)
class Gate:
    """For the architectures that a run is asked to look at."""

    compiler: Compiler
    architectures: tuple[str, ...]

    def look(self, tree: Path, entry: str, diff: str) -> Looked:
        """At every Python file with kernels that the diff adds or changes in the tree.

        Raises: UnknownArchitecture, SandboxError, OSError.
        """
        # each once: launches of one kernel that differ may have the same faults
        faults, fine, unseen = dict[str, None](), dict[str, None](), list[str]()
        for name in changed_paths(diff):
            if not (name.endswith(".py") and _holds_kernels(tree / name)):
                continue
            try:
                compiled = self._compiled(Source(tree / name, launch=tree / entry, every_kernel=True))
            except KernelNotCompiled as error:
                unseen.append(f"{name}: {error.message}")
                continue
            if compiled.refusal is not None:
                unseen.append(f"{name}: {compiled.refusal.told()}")
            for one in compiled.results:
                what = f"{one.variant.kernel} ({name}) on {one.architecture.name}"
                wrong = faults_of(one)
                faults |= dict.fromkeys(f"{what}: {fault}" for fault in wrong)
                if not wrong:
                    numbers = f"{one.code.vgprs} registers, {one.lds_bytes} bytes of LDS"
                    fine[f"{what}: {numbers}, {one.occupancy.waves:g} waves on a SIMD"] = None
        return Looked(tuple(faults), tuple(fine), tuple(unseen))

    def _compiled(self, source: Source) -> Compilations:
        """By launches, else by annotations."""
        found = self.compiler.compile(source, self.architectures)
        return (
            found if found.refusal is None else self.compiler.compile(replace(source, launch=None), self.architectures)
        )


def _holds_kernels(file: Path) -> bool:
    """Whether a function is decorated by something called `jit` in a file that names Triton."""
    try:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return False  # the worker refuses what is no Python
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return "triton" in text and any(
        isinstance(part, ast.Name | ast.Attribute) and "jit" in (getattr(part, "id", ""), getattr(part, "attr", ""))
        for function in functions
        for decorator in function.decorator_list
        for part in ast.walk(decorator)
    )


def faults_of(one: Compiled) -> list[str]:
    """Reasons not to use this one, each with its number and what to try."""
    if one.error:
        return [f"it does not compile: {one.error}"]
    code, found = one.code, list[str]()
    if code.vgpr_spills or code.sgpr_spills:
        found.append(
            f"{code.vgpr_spills} vector and {code.sgpr_spills} scalar registers are spilled (it has {code.vgprs}); "
            "smaller blocks or more warps need fewer"
        )
    if code.scratch_bytes:
        found.append(f"{code.scratch_bytes} bytes of scratch a lane, which is memory, where registers were meant")
    most = one.architecture.lds_bytes
    if one.lds_bytes > most:
        found.append(f"{one.lds_bytes} bytes of LDS, of which there are {most}: it cannot be launched")
    return found
