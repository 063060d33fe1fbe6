"""Processes that fork workers: kept between the restarts of a comparison, each for one build.

Such a process has imported what the original has loaded from outside the target, which takes most of a worker's start.
It serves a few workers, then another takes its place, so that memory layouts are sampled too. Only where the sandbox
ends all that a worker started; where a fork would not be like a start, the process is a worker, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sandbox.contract import Process, ProcessEnded, Sandbox, WouldNotFreeze
from tools.judging.folders import Folders
from tools.tree_removal import remove_tree

WORKERS = 6  # that a process serves
RENEWAL_S = 10.0  # a worker's end, with a device in use, may take a second
IMPORTS = "imports"  # a file with the names of what is imported


class Kind(NamedTuple):
    """Of workers that are forked from the same process: their build, and what their environment depends on."""

    build: str
    tree: Path
    compiles: bool
    malloc: bool
    poison: bool
    compile_threads: int
    bytecode: bool
    toolchain: Path | None


@dataclass
class Parent:
    process: Process
    folders: Folders
    served: int = 0

    def end(self) -> None:
        try:
            self.process.stop()
        finally:
            with contextlib.suppress(OSError):  # what is left goes with the scratch folder of the run
                remove_tree(self.folders.root)


@dataclass
class Warm:
    """To be closed."""

    imports: Collection[str]
    compiler: bool  # whether a fork may have loaded it: on a GPU, its children could not use that
    _idle: dict[Kind, list[Parent]] = field(default_factory=lambda: defaultdict(list), init=False)

    @classmethod
    def where_safe(cls, sandbox: Sandbox, imports: Collection[str], *, compiler: bool) -> Warm | None:
        """None where a parent cannot end all that a worker started: its user has other processes, too."""
        promised = sandbox.promises()
        return cls(imports, compiler) if promised.contained or promised.separate_users else None

    def take(self, kind: Kind, fill: Callable[[Folders], None], cpus: tuple[int, ...] | None) -> Parent | None:
        """One whose next worker begins with the next request, its folders as they were at first; None where none is
        left.
        """
        while self._idle[kind]:
            parent = self._idle[kind].pop()
            with contextlib.suppress(WouldNotFreeze, OSError):
                parent.process.freeze()  # so that no part of a path becomes a link meanwhile
                parent.folders.empty()
                fill(parent.folders)
                parent.process.give(parent.folders.home)
                parent.process.pin(cpus or tuple(os.sched_getaffinity(0)))
                parent.process.thaw()
                return parent
            parent.end()
        return None

    def put(self, kind: Kind, parent: Parent) -> None:
        """Its worker ends, with all that it started."""
        parent.served += 1
        if parent.served < WORKERS:
            with contextlib.suppress(ProcessEnded, TimeoutError):
                if parent.process.renew(RENEWAL_S):
                    self._idle[kind].append(parent)
                    return
        parent.end()

    def names(self, toolchain: Path | None) -> str:
        """What a parent imports; with a toolchain, what compiling takes as well."""
        compiler = toolchain / IMPORTS if toolchain and self.compiler else None
        more = compiler.read_text().split() if compiler and compiler.exists() else []
        return "\n".join(dict.fromkeys([*self.imports, *more]))

    def close(self, but: str = "") -> None:
        """End those of all builds but this."""
        for kind in [kind for kind in self._idle if kind.build != but]:
            for parent in self._idle.pop(kind):
                parent.end()
