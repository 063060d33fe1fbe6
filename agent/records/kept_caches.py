"""Filled compile caches of the stack and of the baselines, kept beside a run so that resuming it fills none again.

A cache is used again only if it has the digest that was written beside it, which finds a copy that was cut short, not
one whom the target's code, uncontained, wrote over together with its digest. What is missing is filled again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from agent.records.atomic_file import write_atomically
from tools.integrity import hash_tree
from tools.tree_removal import remove_tree


@dataclass(frozen=True)
class KeptCaches:
    folder: Path

    def put(self, key: str, cache: Path) -> None:
        """Keep a copy under the key of its build, unless there is one. Raises: OSError."""
        kept, digest = self._files(key)
        if digest.exists():
            return
        remove_tree(kept)
        self.folder.mkdir(mode=0o711, exist_ok=True)  # separate users pass through
        shutil.copytree(cache, kept)
        write_atomically(digest, hash_tree(kept) + "\n")  # last: it says that all is there

    def get(self, key: str) -> Path | None:
        kept, digest = self._files(key)
        try:
            whole = digest.read_text().strip() == hash_tree(kept)
        except OSError:
            return None
        return kept if whole else None

    def drop(self, key: str) -> None:
        kept, digest = self._files(key)
        digest.unlink(missing_ok=True)  # first: without it nothing is there
        remove_tree(kept)

    def clear(self) -> None:
        """When the run is over."""
        remove_tree(self.folder)

    def _files(self, key: str) -> tuple[Path, Path]:
        return self.folder / key, self.folder / f"{key}.sha256"


def bytes_in(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
