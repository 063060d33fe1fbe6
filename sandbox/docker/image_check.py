"""Whether targets can run in an image: it is here, made for this machine, and holds a Python and a PyTorch.

Does not believe labels: what an image holds is asked in a container of it, which has no network and no rights.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sandbox.docker.container import ISOLATED, UNCONNECTED
from sandbox.docker.engine import Engine, Ran
from sandbox.docker.progress import plain
from sandbox.errors import ImageUnusable, SandboxError
from sandbox.supervision.starting import fresh_name

OLDEST_TORCH = (2, 9)
_MAKE = "`agent image build` makes one that can be used, `agent image list` shows those there are."
_NAME_ANOTHER = "--python names another interpreter of the image, by its path there."
_NO_PROGRAM = re.compile(r'exec: "[^"]*": ')  # what the engine says of a program that cannot be started
# platform.machine() in the words of image formats, where they differ
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "i386": "386"}
_NOBODY = 65534
_OUTPUT_BYTES = 64 << 10
_TIMEOUT_S = 300.0  # a PyTorch of many GiB is read from the disk for the first time
# The interpreter is looked up in the image's PATH, but what it holds is seen as commands see it: without variables.
_WHERE = "import sys; print(sys.executable)"
_WHAT = """
import json, os, platform, sys
if sys.argv[1:]:
    os.execve(sys.executable, [sys.executable, "-I", "-c", sys.argv[1]], {"PATH": os.defpath})
told = {"python": platform.python_version(), "executable": sys.executable, "torch": None, "triton": None}
for name in ("torch", "triton"):
    try:
        told[name] = str(__import__(name).__version__)
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == name):
            told["problem"] = "%s: %s" % (name, error)
    except Exception as error:
        told["problem"] = "%s: %s: %s" % (name, type(error).__name__, error)
print("\\n" + json.dumps({key: value and value[:500] for key, value in told.items()}))
"""


def _path(told: str) -> str:
    if not (told.startswith("/") and told.isprintable()):
        raise ValueError("it is no path")
    return told


_Text = Annotated[str, Field(max_length=500), AfterValidator(plain)]


class Contents(BaseModel):
    """What an image says of itself when it is run. It is foreign code that says so: a report, and no proof."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    python: _Text
    executable: Annotated[str, Field(max_length=500), AfterValidator(_path)]
    """The path of the interpreter that the image's own PATH leads to."""
    torch: _Text | None
    triton: _Text | None
    problem: _Text = ""


def usable(engine: Engine, name: str) -> str:
    """The id of an image that is here and was made for this machine. Raises: ImageUnusable, SandboxError."""
    found = engine.image(name)
    if found is None:
        raise ImageUnusable(f"the engine has no image {name}", hint=_MAKE)
    here, made_for = native_architecture(), str(found.get("Architecture") or "unknown")
    if (str(found.get("Os") or "linux"), made_for) != ("linux", here):
        raise ImageUnusable(
            f"the image {name} has the wrong architecture: it is made for {found.get('Os')}/{made_for}, and this "
            f"machine is linux/{here}",
            hint=f"Fetch or build it for linux/{here}, or run where it was made for.",
        )
    if volumes := sorted((found.get("Config") or {}).get("Volumes") or {}):
        raise ImageUnusable(
            f"the image {name} declares volumes ({plain(', '.join(volumes))}), which every container may write to "
            "without a limit",
            hint="Make one without VOLUME: no image made of this one can take it back.",
        )
    return str(found["Id"])


def interpreter(engine: Engine, name: str, python: str) -> str:
    """The path of this interpreter in a usable image, also where a name is given. Raises: ImageUnusable."""
    ran = _run(engine, name, [python, "-I", "-S", "-c", _WHERE], name)
    try:
        return _path(ran.output.rstrip("\r\n").rpartition("\n")[2] if ran.status == 0 else "")
    except ValueError:
        said = f"{python} does not run in the image {name}: {_last_words(ran)}"
        raise ImageUnusable(said, hint=_NAME_ANOTHER) from None


def inspect(name: str, engine: Engine, *, need_torch: bool = True, called: str = "") -> Contents:
    """What it holds, as seen from inside by a user without rights; `called` is its name for messages.

    Raises: ImageUnusable (also when it has no Python, or no PyTorch that will do and one is needed), SandboxError.
    """
    image, name = usable(engine, name), called or name
    ran = _run(engine, image, ["python3", "-I", "-c", _WHAT, _WHAT], name)
    lines = ran.output.strip().splitlines()
    try:
        told = Contents.model_validate_json(lines[-1] if ran.status == 0 and lines else "")
    except ValidationError:
        raise ImageUnusable(f"the image {name} cannot be looked into: {_last_words(ran)}", hint=_MAKE) from None
    if need_torch and (want := want_of_torch(told.torch)):
        why = f" (its {told.executable} says of {told.problem})" if told.problem else ""
        raise ImageUnusable(
            f"the image {name} has {want}{why}",
            hint="--base names a base that has one; a target may also bring it among its requirements.",
        )
    return told


def native_architecture() -> str:
    """This machine's, in the words of image formats."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def want_of_torch(version: str | None) -> str:
    """What a PyTorch of this version lacks for a run, in words; nothing when it will do."""
    oldest = ".".join(map(str, OLDEST_TORCH))
    if not version:
        return f"no PyTorch: a run needs {oldest} or newer"
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_TORCH:
        return f"PyTorch {plain(version)}, which is too old: a run needs {oldest} or newer"
    return ""


def _run(engine: Engine, image: str, argv: Sequence[str], name: str) -> Ran:
    """Raises: ImageUnusable when it has no such program; SandboxError, DiskFull."""
    host = {
        **ISOLATED,
        "pids_limit": 1024,
        "mem_limit": 8 << 30,
        "memswap_limit": 8 << 30,
        "tmpfs": {"/tmp": f"rw,nosuid,nodev,noexec,mode=1777,size={64 << 20}"},
    }
    user = f"{os.geteuid() or _NOBODY}:{os.getegid() or _NOBODY}"
    options = {**UNCONNECTED, "user": user, "working_dir": "/"}
    try:
        return engine.run_once(fresh_name(), image, list(argv), host, "image", _TIMEOUT_S, _OUTPUT_BYTES, **options)
    except SandboxError as error:
        if _NO_PROGRAM.search(error.message):
            raise ImageUnusable(f"the image {name} has no {argv[0]}", hint=f"{_NAME_ANOTHER} {_MAKE}") from error
        raise


def _last_words(ran: Ran) -> str:
    if ran.out_of_memory:
        return "its memory was used up"
    if ran.status is None:
        return "it prints without end" if ran.output_bytes > _OUTPUT_BYTES else "it does not answer"
    lines = ran.output.strip().splitlines()
    return plain(lines[-1]) if lines else f"it ends with status {ran.status} and says nothing"
