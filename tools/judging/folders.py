"""The folders of a worker, and the environment variables that point its process to them.

It may write to `home`; inputs are revealed in `inbox`, which it only reads.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from tools.judging import taking
from tools.program_environment import USER, environment
from tools.tree_removal import remove_tree

# without these, one restart differs from the next by 10 to 18 % at calls of 8 to 40 ms; with them by 1.3 to 2.5 %
_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# glibc fills memory it hands out with 0x7f: what a candidate did not write is a huge number, never a stale result
_MALLOC_POISON = {"MALLOC_PERTURB_": "128"}
# What torch keeps under a key that leaves out code which it traces, as of `triton_op`: another build may have other
# code. The rest is kept under all that it was made from.
_TRACED = Path("inductor", "aotautograd")
CACHE = "cache"  # below the home: of TorchInductor, Triton and extensions
EXTENSIONS = "extensions"  # of a cache: what torch builds of C++
BYTECODE = "bytecode"
HEADERS = f"tmp/torchinductor_{USER}/precompiled_headers"  # where Inductor looks for them


@dataclass(frozen=True)
class Folders:
    root: Path

    @classmethod
    def made(cls, scratch: Path, role: str, separate_users: bool) -> Folders:
        """New ones. Raises: OSError."""
        # passed through, but not listed: under the same names another worker's inbox shows what will be asked next.
        # Where a worker has our user, a set-user-id file that it leaves would be ours, so nobody else may pass
        passing = 0o711 if separate_users else 0o700
        scratch.mkdir(mode=passing, parents=True, exist_ok=True)
        found = cls(scratch / f"{role}-{secrets.token_hex(8)}")
        found.root.mkdir(mode=passing)
        for folder in (found.out, found.tmp, found.cache, found.inbox):
            folder.mkdir(parents=True)
        return found

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def inbox(self) -> Path:
        return self.root / "inbox"

    @property
    def out(self) -> Path:
        return self.home / "out"

    @property
    def tmp(self) -> Path:
        return self.home / "tmp"

    @property
    def cache(self) -> Path:
        return self.home / CACHE

    def fill(self, toolchain: Path | None, own: Path | None, handed_on: Path | None) -> None:
        """The compile cache: the build's own, else that of the build it was made from, else what all share."""
        if toolchain is not None:  # not whole folders: Inductor's locks must be made where it may write
            (self.home / HEADERS).mkdir(parents=True)
            for file in filter(Path.is_file, (toolchain / "headers").iterdir()):
                (self.home / HEADERS / file.name).symlink_to(file)
        if own is not None and own.exists():
            taking.copy_folder(own, self.cache)
        elif handed_on is not None:
            taking.copy_folder(handed_on, self.cache)
            remove_tree(self.cache / _TRACED)
        elif toolchain is not None:
            taking.copy_folder(toolchain / "cache", self.cache)

    def environment(self, threads: int, malloc: bool, poison: bool, compile_threads: int) -> dict[str, str]:
        return {
            **environment(self.home, tmp=self.tmp, threads=threads),
            "PYTHONUNBUFFERED": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache / "inductor"),
            "TRITON_CACHE_DIR": str(self.cache / "triton"),
            "TORCH_EXTENSIONS_DIR": str(self.cache / EXTENSIONS),
            # a bundle names files by the folder of the worker that filled the cache, which is not there any more
            "TORCHINDUCTOR_BUNDLE_TRITON_INTO_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_COMPILE_THREADS": str(compile_threads),  # above 1 it keeps a pool of processes
            **(_MALLOC if malloc else {}),
            **(_MALLOC_POISON if poison else {}),
        }

    def bytecode(self, toolchain: Path | None, writes: bool) -> dict[str, str]:
        """Where Python looks for bytecode, unless that lies beside the sources; `writes` it there, to be kept."""
        if writes:
            return {"PYTHONPYCACHEPREFIX": str(self.home / BYTECODE), "PYTHONDONTWRITEBYTECODE": ""}
        made = None if toolchain is None else toolchain / BYTECODE
        return {} if made is None or not made.exists() else {"PYTHONPYCACHEPREFIX": str(made)}
