"""Make `.venv`: the locked packages, beside the torch that this machine already has or a pinned one.

Never replaces a torch that is there, and never touches a `.venv` it did not make. Safe to call again: it finishes at
once when everything is in place, and starts over what was interrupted. Usage: python3 scripts/set_up.py [--lean]
`--lean` leaves out what only the extras, the tests and the other targets of `make` need; they add it.

This file must parse under Python 3.7, to be able to say that a Python is too old.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 9)
PINNED_TORCH = "torch==2.13.0"
# For the tests of the kernels, which run in its interpreter; a torch for a GPU brings its own, which stays.
PINNED_TRITON = "triton==3.9.0; sys_platform == 'linux' and platform_machine == 'x86_64'"
KFD = Path("/dev/kfd")  # the device of AMD's compute driver
# One file with two names: `UNFINISHED` from the first moment, renamed to `STAMP` as the very last act.
UNFINISHED, STAMP, LOG = "ratchet-unfinished.json", "ratchet-complete.json", "ratchet-setup.log"
HELD = "ratchet-torch.txt"  # the version of the torch that is there, for pip
EXTRAS = "evals,llm,mcp,skills,dev"

LOOK_FOR_TORCH = """
import json
try:
    import torch
except Exception as error:
    print(json.dumps({"problem": "%s: %s" % (type(error).__name__, error)}))
else:
    print(json.dumps({"version": torch.__version__, "file": torch.__file__, "hip": torch.version.hip}))
"""
NO_NETWORK = re.compile(
    "NewConnectionError|NameResolutionError|Temporary failure in name resolution|Network is unreachable"
    "|ConnectTimeout|ReadTimeout|ProxyError|Connection refused|Max retries exceeded|Could not fetch URL"
)


class SetupError(Exception):
    """Something the person has to mend; the text says what."""


def main() -> int:
    try:
        check_machine(sys.version_info[:3])
        set_up(lean="--lean" in sys.argv[1:])
    except (SetupError, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command starts over what was not finished")
        return 130
    return 0


def check_machine(version: tuple[int, ...]) -> None:
    """Raises: SetupError for the first thing that is missing."""
    if version[:2] < OLDEST_PYTHON:
        found = ".".join(map(str, version))
        raise SetupError(
            f"Python 3.11 or newer is needed, and {sys.executable} is {found}. Name another: make PYTHON=python3.12 …"
        )
    if shutil.which("git") is None:
        raise SetupError("git is needed and was not found. Install it (package `git`) and run the same command again.")
    if not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        raise SetupError(
            "a C compiler is needed (torch.compile and Triton build with it) and none was found. Install one (package "
            "`build-essential` or `gcc-c++`) and run the same command again."
        )
    for what, there in (
        ("a C++ compiler (package `g++`)", any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))),
        ("Python's headers (package `python3-dev`)", Path(sysconfig.get_path("include"), "Python.h").exists()),
    ):
        if not there:
            say(f"warning: {what} was not found: torch.compile will not work on the CPU")


def set_up(lean: bool = False) -> None:
    """Raises: SetupError. After it `.venv` is complete."""
    stamp, unfinished = VENV / STAMP, VENV / UNFINISHED
    lean_one, whole = ({"inputs": inputs(), "lean": each} for each in (True, False))
    there = json.loads(stamp.read_text()) if stamp.exists() and python().exists() else None
    if there == whole or (lean and there == lean_one):
        return
    if VENV.exists() and any(VENV.iterdir()) and not (stamp.exists() or unfinished.exists()):
        raise SetupError(f"{VENV} is there and was not made by this program; move it away first.")
    if Path(sys.prefix).resolve() == VENV.resolve():
        raise SetupError(f"{VENV} is out of date, and its own Python cannot make it again: leave it with `deactivate`.")
    start = time.monotonic()
    own_torch = usable_torch()  # before anything is removed: a machine that cannot be set up keeps what it has
    if there == lean_one:
        stamp.replace(unfinished)
    else:
        begin_again(unfinished)
        make_venv(own_torch)
        install_torch(own_torch)
    install(lean)
    check_result(own_torch)
    unfinished.write_text(json.dumps(lean_one if lean else whole))
    unfinished.replace(stamp)
    say(f"ready in {time.monotonic() - start:.0f} s: {VENV}")


def begin_again(unfinished: Path) -> None:
    if VENV.is_symlink():
        VENV.unlink()
    VENV.mkdir(exist_ok=True)
    unfinished.touch()
    for path in [path for path in VENV.iterdir() if path != unfinished]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def inputs() -> str:
    """Changes when the environment has to be made again: another lock, other dependencies, another Python."""
    digest = hashlib.sha256(f"{os.path.realpath(sys.executable)} {sys.version}".encode())
    for name in ("requirements.lock", "pyproject.toml", "scripts/set_up.py"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def python() -> Path:
    return VENV / "bin" / "python"


def usable_torch() -> dict[str, str] | None:
    """The torch this Python already has, or None when the pinned one is to be installed. Raises: SetupError."""
    found = look_for_torch(sys.executable)
    problem = found.get("problem", "")
    if not problem and tuple(map(int, re.findall(r"\d+", found["version"])[:2])) >= OLDEST_TORCH:
        say(f"using the torch {found['version']} of {sys.executable}")
        if KFD.exists() and not found["hip"]:
            say("warning: this torch was not built for ROCm, so targets will run on the CPU only")
        return found
    if KFD.exists():
        why = f"it cannot be imported ({problem})" if problem else f"{found['version']} is too old"
        raise SetupError(
            f"this machine has an AMD GPU ({KFD}), and {sys.executable} has no usable torch: {why}. A torch for ROCm, "
            "2.9 or newer, is needed, and pip does not find one by itself. Use a `rocm/pytorch` container image, or "
            'install the ROCm wheels of AMD or of PyTorch as AMD\'s page "Install PyTorch for ROCm" says; then run '
            "the same command again, with `make PYTHON=…` if that torch belongs to another Python."
        )
    return None


def look_for_torch(of: str) -> dict[str, str]:
    # From /, and without the current folder on the path: a file torch.py here is not what is meant.
    done = subprocess.run([of, "-P", "-c", LOOK_FOR_TORCH], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        return json.loads(done.stdout.decode().splitlines()[-1])
    except (IndexError, ValueError):
        return {"problem": f"Python ended with status {done.returncode} while importing it"}


def make_venv(own_torch: dict[str, str] | None) -> None:
    options = [] if own_torch is None else ["--system-site-packages"]
    run(
        [sys.executable, "-m", "venv", *options, str(VENV)], f"making {VENV.name}", "The environment could not be made."
    )
    if own_torch is not None and sys.prefix != sys.base_prefix:
        # "System" packages are those of the base Python; when torch lives in a virtual environment, as in many
        # container images, its folders are added by name.
        outer = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        (packages,) = VENV.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in outer]
        (packages / "ratchet_outer_environment.pth").write_text("".join(lines))


def install_torch(own_torch: dict[str, str] | None) -> None:
    """The pinned one, or hold the one that is there fast; and the locked setuptools."""
    if own_torch is None:
        pip(["setuptools", PINNED_TORCH], f"installing {PINNED_TORCH} (large)")
    else:
        (VENV / HELD).write_text(f"torch=={own_torch['version']}\n")
        pip(["setuptools"], "installing the build tool")


def install(lean: bool) -> None:
    # Without build isolation, so that the build uses the locked setuptools instead of fetching another one.
    project = ["--no-build-isolation", "--editable", f"{ROOT}" if lean else f"{ROOT}[{EXTRAS}]"]
    pip(project, "installing the packages")
    if not lean and not has_triton():
        pip(["--no-deps", PINNED_TRITON], "installing Triton")


def has_triton() -> bool:
    return subprocess.run([str(python()), "-c", "import triton"], stderr=subprocess.DEVNULL).returncode == 0


def pip(what: list[str], title: str) -> None:
    command = [str(python()), "-m", "pip", "install", "--disable-pip-version-check", "--retries", "2"]
    for constraints in (ROOT / "requirements.lock", VENV / HELD):
        command += ["--constraint", str(constraints)] if constraints.exists() else []
    run([*command, *what], title, "pip could not install what is needed.")


def run(command: list[str], title: str, failure: str) -> None:
    """Run a command with its output in the log. Raises: SetupError with the end of it and what it means."""
    say(title)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with (VENV / LOG).open("ab") as log:
        log.write(done.stdout)
    if done.returncode == 0:
        return
    text, ending = done.stdout.decode(errors="replace"), ""
    if "No space left on device" in text:
        failure = "The disk is full; free some space."
    elif NO_NETWORK.search(text):
        failure = "No package index could be reached: check the network or the proxy, or name one in PIP_INDEX_URL."
    else:
        ending = ":\n" + "\n".join("  | " + line for line in text.splitlines()[-8:])
    raise SetupError(f"{failure} The same command starts over. All of its output is in {VENV / LOG}{ending}")


def check_result(own_torch: dict[str, str] | None) -> None:
    """What was installed answers, and a torch that was there is the one in use, unchanged. Raises: SetupError."""
    torch = look_for_torch(str(python()))
    if "problem" in torch:
        raise SetupError(f"the new environment cannot import torch: {torch['problem']}")
    if own_torch is not None and torch != own_torch:
        raise SetupError(f"the new environment sees {torch} instead of this machine's torch, {own_torch}")
    run([str(VENV / "bin" / "agent"), "--version"], "checking", "The installed command does not start.")


def say(line: str) -> None:
    print(f"set-up: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
