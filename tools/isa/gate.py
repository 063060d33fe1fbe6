"""The gate for Triton candidates: every kernel compiles for every architecture, and without spills or scratch.

Refuses to judge speed. It is no wall, either: a file that is loaded can change what its own compiler says of it, so
passing only means that an honest kernel has no such fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.isa.compile import Compiled, Compiler, Source


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
    return Check(bool(found.results) and not reasons, reasons or (() if found.results else ("nothing was compiled",)),
                 found.results)  # fmt: skip


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
