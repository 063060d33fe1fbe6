"""Manifests of files that verdicts depend on and no candidate may change, whatever the sandbox allows.

A change is not undone: after one to shared files nothing more can be judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools.errors import GroundsChanged
from tools.integrity import Manifest
from tools.judging.worker import Build


@dataclass
class Grounds:
    """`shared` is the guest, the pristine tree, the installed packages; trees and caches of builds are their own."""

    shared: Manifest = field(default_factory=lambda: Manifest.take([]))
    _own: dict[Path, Manifest] = field(default_factory=dict)  # as they were at first

    def share(self, roots: Iterable[Path]) -> None:
        """Watch these as well, as they are now."""
        self.shared = Manifest.take([*self.shared.roots, *roots])

    def watch(self, root: Path) -> Path:
        self._own[root] = Manifest.take([root])
        return root

    def changes(self, *builds: Build) -> list[str]:
        """One line for each change, to what all share and to the trees and caches of these builds."""
        roots = [root for build in builds for root in (build.tree, build.cache) if root is not None]
        watched = [self.shared, *(self._own[root] for root in roots if root in self._own)]
        return [change for manifest in watched for change in Manifest.take(manifest.roots).changes(manifest)]

    def check(self) -> None:
        """Raises: GroundsChanged, for which a candidate, if it was one, has its verdict."""
        if changes := self.changes():
            raise GroundsChanged(
                f"What every verdict rests on was changed while the run went on: {changes[0]}.",
                hint="Put it back (an installed package: install it again; compiled Python that another process added: "
                "remove it) and start a new run; what was proven before is kept.",
            )
