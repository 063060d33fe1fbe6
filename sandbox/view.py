"""What of this machine a contained command may see: its programs and libraries, and one Python; nobody's files.

Refuses to run the interpreter to ask: what starts with a Python is code of its environment, and belongs inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import SandboxUnavailable

# Programs, libraries and their settings, as on every Linux; none of it is anybody's data.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/rocm", "/nix/store", "/gnu/store")
_SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
             "/etc/OpenCL", "/etc/vulkan")  # fmt: skip
_DEEPEST = 4  # virtual environments made from virtual environments
_TOO_MUCH = frozenset(map(Path, ("/", "/etc", "/home", "/root", "/tmp", "/var", "/proc", "/sys", "/dev", "/run")))


def of_machine(python: str, root: Path = Path("/")) -> tuple[Path, ...]:
    """The paths to show read-only so that this interpreter runs: each exists, none lies in another.

    Raises: SandboxUnavailable when showing it would show a whole home, or there is no such interpreter.
    """
    system = [path for name in (*_SYSTEM, *_SETTINGS) if (path := root / name.lstrip("/")).exists()]
    system += sorted((root / "opt").glob("rocm-*"))
    return _outermost([*system, *of_python(python)])


def of_python(python: str) -> tuple[Path, ...]:
    """The folders that hold an interpreter and its packages, through all its links; virtual environments included.

    Raises: SandboxUnavailable.
    """
    found: list[Path] = []
    program = Path(python).absolute()
    for _ in range(40):  # what the kernel follows
        if not os.path.lexists(program):
            raise SandboxUnavailable(f"there is no interpreter {python}", hint="--python takes the path of a Python.")
        found += _installation(program)
        if not program.is_symlink():
            break
        program = Path(os.path.normpath(program.parent / os.readlink(program)))
    for folder in found:
        if folder in _TOO_MUCH or folder == Path.home():
            raise SandboxUnavailable(
                f"the interpreter {python} cannot be shown to the sandbox without all of {folder}",
                hint="Give --python an interpreter in a folder of its own, such as a virtual environment.",
            )
    return _outermost(found)


def _installation(program: Path, depth: int = 0) -> list[Path]:
    """The folder above `bin`, as it is named and as it is, and where a virtual environment says that it comes from."""
    folder = program.parent
    # /bin is a link to usr/bin: what it is named by is not the folder above
    named = [] if folder.is_symlink() else [_prefix(folder)]
    found = list(dict.fromkeys([*named, _prefix(folder.resolve())]))
    if depth == _DEEPEST:  # one that says that it comes from itself
        return found
    homes = [home for prefix in found if (home := _home_of(prefix)) is not None]
    return [*found, *(path for home in dict.fromkeys(homes) for path in _installation(home / program.name, depth + 1))]


def _prefix(folder: Path) -> Path:
    return folder.parent if folder.name in ("bin", "sbin") else folder


def _home_of(prefix: Path) -> Path | None:
    """The folder with the interpreter that a virtual environment was made from (PEP 405)."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip().lower() == "home":
            return Path(value.strip())
    return None


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return tuple(kept)
