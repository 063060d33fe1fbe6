"""What of this machine a contained command may see: its programs and libraries, and one Python, but no user's files.

Does not run the interpreter to ask: what starts with a Python is code of its environment, and belongs inside.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import SandboxUnavailable

# Programs, libraries and their settings, as on every Linux; none of it is anybody's data.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/rocm", "/nix/store", "/gnu/store")
_NAMES = "ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime OpenCL vulkan"
_SETTINGS = tuple(f"/etc/{name}" for name in _NAMES.split())
_DEEPEST = 4  # virtual environments made from virtual environments
_MOST_LINKS = 40  # what the kernel follows
_SETTINGS_FILE, _MOST_SETTINGS = "pyvenv.cfg", 64 << 10
_CLOSED = ("/etc", "/var", "/proc", "/sys", "/dev", "/run")
_SECRETS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".config", ".docker", ".kube", ".mozilla", ".password-store"})
_ANOTHER = "Give --python an interpreter in its own folder, such as a virtual environment."
_MAKE_AGAIN = "Make the virtual environment again, from a Python in its own folder, or give --python another one."
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

    A virtual environment may be the target's own, and says itself what it was made from: wherever its links and its
    settings lead must be a Python's, and nothing of a user's or of the machine's own. That settles what can be read,
    and not what runs: our own programs inside, with `-I -S` too, load the standard library of that Python, which the
    target may have written. It is loaded inside the sandbox only, and nothing it says there is believed.

    Raises: SandboxUnavailable.
    """
    found: list[Path] = []
    program, named_by = Path(python).absolute(), f"the interpreter {python}"
    for followed in range(_MOST_LINKS):
        if not os.path.lexists(program):
            raise SandboxUnavailable(f"there is no interpreter {python}", hint="--python takes the path of a Python.")
        held = _installation(program, named_by)
        for folder in held:
            _check_shown(folder, named_by, led_to=followed > 0)
        found += held
        if not program.is_symlink():
            break
        program = Path(os.path.normpath(program.parent / os.readlink(program)))
    if not _is_installation(_prefix(program.parent.resolve())):
        raise SandboxUnavailable(f"{named_by} leads to {program}, which is in no Python's installation", hint=_ANOTHER)
    return _outermost(found)


def _installation(program: Path, named_by: str, depth: int = 0) -> list[Path]:
    """The folder above `bin`, as it is named and as it is, and where a virtual environment says that it comes from."""
    folder = program.parent
    # /bin is a link to usr/bin: what it is named by is not the folder above
    named = [] if folder.is_symlink() else [_prefix(folder)]
    found = list(dict.fromkeys([*named, _prefix(folder.resolve())]))
    if depth == _DEEPEST:  # one that says that it comes from itself
        return found
    homes = {home: prefix / _SETTINGS_FILE for prefix in found if (home := _home_of(prefix)) is not None}
    return [*found, *(path for home in homes for path in _origin(home, homes[home], program.name, depth + 1))]


def _prefix(folder: Path) -> Path:
    """The installation that a folder with an interpreter belongs to; of one with links to interpreters only itself."""
    return folder.parent if folder.name in ("bin", "sbin") and _is_installation(folder.parent) else folder


def _is_installation(prefix: Path) -> bool:
    libraries = prefix.glob("lib*/python3*/os.py")
    return os.path.isfile(prefix / _SETTINGS_FILE) or any(os.path.isfile(file) for file in libraries)


def _is_program(path: Path) -> bool:
    """What cannot be looked at is none."""
    return os.path.isfile(path) and bool(path.stat().st_mode & 0o111)


def _origin(home: Path, settings: Path, program: str, depth: int) -> list[Path]:
    """What is to be shown of what a virtual environment was made from. Raises: SandboxUnavailable."""
    named_by = f"{settings} (home = {str(home)!r})"
    names = (program, "python3", "python", *sorted(path.name for path in home.glob("python3.*")))
    interpreter = next((home / name for name in names if _is_program(home / name)), None)
    real = None if interpreter is None else interpreter.resolve()
    if interpreter is None or real is None or not (home.is_absolute() and _is_installation(_prefix(real.parent))):
        raise SandboxUnavailable(f"{named_by} leads to no Python", hint=_MAKE_AGAIN)
    found = [*_installation(interpreter, named_by, depth), _prefix(real.parent)]
    for folder in found:
        _check_shown(folder, named_by, led_to=True)
    return found


def _home_of(prefix: Path) -> Path | None:
    """The folder with the interpreter that a virtual environment was made from (PEP 405)."""
    try:
        # a pipe in its place is not waited for
        descriptor = os.open(prefix / _SETTINGS_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, errors="replace") as file:
            lines = file.read(_MOST_SETTINGS).splitlines() if stat.S_ISREG(os.fstat(descriptor).st_mode) else []
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip().lower() == "home" and "\0" not in value:
            return Path(value.strip())
    return None


def _check_shown(folder: Path, named_by: str, *, led_to: bool) -> None:
    """`led_to`: a link or a setting says so, which may be the target's. Raises: SandboxUnavailable."""
    real = folder.resolve()
    if {folder, real} & _TOO_MUCH or any(real == home or home.is_relative_to(real) for home in _homes()):
        raise SandboxUnavailable(f"{named_by} cannot be shown to the sandbox without all of {folder}", hint=_ANOTHER)
    if not led_to or _is_below(real, (*_SYSTEM, *_SETTINGS)):
        return
    own = Path.home().resolve()  # below /var on some systems
    is_own = own != Path("/") and real.is_relative_to(own)
    if _SECRETS & set(real.parts) or (_is_below(real, _CLOSED) and not is_own):
        raise SandboxUnavailable(f"{named_by} leads to {real}, which is shown to no sandbox", hint=_MAKE_AGAIN)


def _homes() -> list[Path]:
    """The homes of users; a service's may be a folder of programs, or one that all have."""
    homes = {Path.home().resolve(), *(Path(user.pw_dir).resolve() for user in pwd.getpwall())}
    return [home for home in homes if home != Path("/") and not _is_below(home, _SYSTEM)]


def _is_below(path: Path, names: Iterable[str]) -> bool:
    return any(path.is_relative_to(name) for name in names)


def _outermost(paths: Iterable[Path]) -> tuple[Path, ...]:
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return tuple(kept)
