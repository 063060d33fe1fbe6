"""The gate for Triton candidates: every kernel compiles for every architecture, and without spills or scratch.

A candidate's kernels are described by their launches when the entry runs, else by their annotations. What neither
describes is not refused: it is said that it was not looked at.

Does not judge speed. It is no wall, either: a file that is loaded can change what its own compiler says of it, so
passing only means that an honest kernel has no such fault.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.diff.patch import changed_paths
from tools.errors import KernelNotCompiled
from tools.isa.compile import Compilations, Compiled, Compiler, Source


@dataclass(frozen=True)
class Check:
    """`reasons` say why it does not pass, one line each; `compiled` is what was looked at."""

    passed: bool
    reasons: tuple[str, ...] = ()
    compiled: tuple[Compiled, ...] = ()


def check(compiler: Compiler, source: Source, architectures: Sequence[str]) -> Check:
    """Raises: UnknownArchitecture, KernelNotCompiled when the file's folder is too large, SandboxError, OSError."""
    found = compiler.compile(source, architectures)
    if found.refusal is not None:
        return Check(False, (found.refusal.told(),))
    faults = [(one, fault) for one in found.results for fault in faults_of(one)]
    reasons = tuple(f"{one.variant.kernel} on {one.architecture.name}: {fault}" for one, fault in faults)
    return Check(
        bool(found.results) and not reasons,
        reasons or (() if found.results else ("nothing was compiled",)),
        found.results,
    )


@dataclass(frozen=True)
class Looked:
    """At the kernels of a candidate: `faults` keep it from being used, `looked_at` is what had none."""

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
        """At every file of kernels that the diff adds or changes in the tree.

        Raises: UnknownArchitecture, SandboxError, OSError.
        """
        found = Looked()
        for name in _changed(diff):
            if _holds_kernels(tree / name):
                found = self._look_at(found, name, Source(tree / name, launch=tree / entry, every_kernel=True))
        return found

    def _look_at(self, found: Looked, name: str, source: Source) -> Looked:
        try:
            compiled = self.compiler.compile(source, self.architectures)
            if compiled.refusal is not None:
                compiled = self.compiler.compile(replace(source, launch=None), self.architectures)
        except KernelNotCompiled as error:
            return replace(found, not_looked_at=(*found.not_looked_at, f"{name}: {error.message}"))
        if compiled.refusal is not None:
            said = f"{name}: {compiled.refusal.told()}"
            return replace(found, not_looked_at=(*found.not_looked_at, said))
        faults, fine = _told(name, compiled)
        return replace(found, faults=(*found.faults, *faults), looked_at=(*found.looked_at, *fine))


def _told(name: str, compiled: Compilations) -> tuple[list[str], list[str]]:
    """Each once: launches of one kernel that differ may have the same to say."""
    faults, fine = dict[str, None](), dict[str, None]()
    for one in compiled.results:
        what = f"{one.variant.kernel} ({name}) on {one.architecture.name}"
        wrong = faults_of(one)
        faults |= dict.fromkeys(f"{what}: {fault}" for fault in wrong)
        if not wrong:
            fine[
                f"{what}: {one.code.vgprs} registers, {one.lds_bytes} bytes of LDS, "
                f"{one.occupancy.waves:g} waves on a SIMD"
            ] = None
    return list(faults), list(fine)


def _changed(diff: str) -> list[str]:
    """Python files; those that are gone afterwards hold no kernels."""
    return [path for path in changed_paths(diff) if path.endswith(".py")]


def _holds_kernels(file: Path) -> bool:
    """Whether a function is decorated by something called `jit` in a file that names Triton."""
    try:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return False  # what is no Python is refused by who runs it
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return "triton" in text and any(
        isinstance(part, ast.Name | ast.Attribute) and "jit" in (getattr(part, "id", ""), getattr(part, "attr", ""))
        for function in functions
        for decorator in function.decorator_list
        for part in ast.walk(decorator)
    )


def faults_of(one: Compiled) -> list[str]:
    """What keeps this one from being used, each with its number and what to try."""
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
