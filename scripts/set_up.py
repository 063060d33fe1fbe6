"""Make `.venv`: the locked packages, beside the torch that this machine already has or a pinned one.

Refuses to replace a torch that is there, and to touch a `.venv` it did not make or that it runs in. Safe to call
again: it finishes at once when everything is in place, and starts over what was interrupted. Usage: python3
scripts/set_up.py

This file also runs under a Python that is too old, to be able to say so: no syntax newer than 3.6, and imports that
3.6 has.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# One file with two names: `UNFINISHED` from the first moment, renamed to `STAMP` as the very last act.
UNFINISHED = VENV / "ratchet-unfinished.json"
STAMP = VENV / "ratchet-complete.json"
LOG = VENV / "ratchet-setup.log"
REMOVING = ROOT / ".venv-removing"

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 9)
PINNED_TORCH = "torch==2.13.0"
# For the tests of the kernels, which run in its interpreter; a torch for a GPU brings its own, which stays.
PINNED_TRITON = "triton==3.9.0; sys_platform == 'linux' and platform_machine == 'x86_64'"
KFD = Path("/dev/kfd")  # the device of AMD's compute driver

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
        with one_at_a_time() as lock:
            set_up(lock)
    except (SetupError, OSError) as error:
        print("set-up: " + str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up: interrupted; the same command starts over what was not finished", file=sys.stderr)
        return 130
    return 0


def check_machine(version: "tuple[int, ...]") -> None:
    """Raises: SetupError for the first thing that is missing."""
    if version[:2] < OLDEST_PYTHON:
        raise SetupError(
            "Python 3.11 or newer is needed, and {} is {}. Install one and name it: make PYTHON=python3.12 …".format(
                sys.executable, ".".join(map(str, version))
            )
        )
    if shutil.which("git") is None:
        raise SetupError("git is needed and was not found. Install it (package `git`) and run the same command again.")
    if not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        raise SetupError(
            "a C compiler is needed (torch.compile and Triton build with it) and none was found. Install one (package "
            "`build-essential` or `gcc-c++`) and run the same command again."
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise SetupError(
            "{} has no `venv` or `ensurepip`. Install them (Debian and Ubuntu: package `python3-venv`) and run the "
            "same command again.".format(sys.executable)
        ) from None
    for what, there in (
        ("a C++ compiler (package `g++`)", any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))),
        ("Python's headers (package `python3-dev`)", Path(sysconfig.get_path("include"), "Python.h").exists()),
    ):
        if not there:
            say("warning: {} was not found: torch.compile will not work on the CPU".format(what))


@contextlib.contextmanager
def one_at_a_time() -> "typing.Iterator[int]":
    """Two `make` at once must not build the same folder.

    What is started gets the lock's descriptor too: the kernel lets go only when all of them have ended, so that a pip
    which outlives a killed set-up is waited for.
    """
    with (ROOT / "pyproject.toml").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this folder")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def set_up(lock: int) -> None:
    """Raises: SetupError. After it `.venv` is complete."""
    wanted = inputs()
    made_of = json.loads(STAMP.read_text()) if STAMP.exists() else {}
    inside = Path(sys.prefix).resolve() == VENV.resolve()
    if inside:  # by a Python that is not the one it was made from
        wanted["python"] = made_of.get("python", "")
    if made_of == wanted and works():
        return
    start = time.monotonic()
    if VENV.exists() and not STAMP.exists() and not UNFINISHED.exists() and any(VENV.iterdir()):
        raise SetupError("{} is there and was not made by this program; move it away first.".format(VENV))
    if inside:
        raise SetupError(
            "{} is unfinished or out of date, and its own Python cannot make it anew. Leave it with `deactivate`, or "
            "name the Python that it was made from: make PYTHON=/usr/bin/python3 …".format(VENV)
        )
    # Looked at before anything is removed: a machine that cannot be set up keeps what it has.
    own_torch = usable_torch()
    # Renamed before it is removed, because a removal that is interrupted may leave anything.
    remove(REMOVING)
    if VENV.exists() or VENV.is_symlink():
        say("{} is unfinished or out of date: making it anew".format(VENV.name))
        VENV.replace(REMOVING)
        remove(REMOVING)
    VENV.mkdir()
    UNFINISHED.write_text(json.dumps(wanted))
    make_venv(own_torch, lock)
    install(own_torch, lock)
    check_result(own_torch, lock)
    UNFINISHED.replace(STAMP)
    say("ready in {:.0f} s: {}".format(time.monotonic() - start, VENV))


def inputs() -> "dict[str, str]":
    """Changes when the environment has to be made anew: another lock, other dependencies, another Python."""
    digest = hashlib.sha256()
    for name in ("requirements.lock", "pyproject.toml", "scripts/set_up.py"):
        digest.update((ROOT / name).read_bytes())
    python = "{} {} {}".format(os.path.realpath(sys.executable), sys.prefix, sys.version)
    return {"files": digest.hexdigest(), "python": python}


def remove(folder: Path) -> None:
    """It need not be there. What a link leads to stays."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(str(folder))


def works() -> bool:
    """False when the Python it was made from is gone."""
    try:
        return subprocess.run([str(PYTHON), "-c", ""], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def usable_torch() -> "dict[str, str] | None":
    """The torch this Python already has, or None when the pinned one is to be installed. Raises: SetupError."""
    found = look_for_torch(sys.executable)
    problem = found.get("problem", "")
    if not problem and numbers(found["version"]) >= OLDEST_TORCH:
        say("using the torch {} of {}".format(found["version"], sys.executable))
        if KFD.exists() and not found["hip"]:
            say("warning: this torch was not built for ROCm, so targets will run on the CPU only")
        return found
    if KFD.exists():
        why = "it cannot be imported ({})".format(problem) if problem else "{} is too old".format(found["version"])
        raise SetupError(
            "this machine has an AMD GPU ({}), and {} has no usable torch: {}. A torch for ROCm, 2.9 or newer, is "
            "needed, and it is not among the packages pip finds by itself. Use a `rocm/pytorch` container image, or "
            'install the ROCm wheels of AMD or of PyTorch as AMD\'s page "Install PyTorch for ROCm" says; then run '
            "the same command again, with `make PYTHON=…` if that torch belongs to another Python.".format(
                KFD, sys.executable, why
            )
        )
    return None


def look_for_torch(python: str) -> "dict[str, str]":
    # From /, and without the current folder on the path: a file torch.py here is not what is meant.
    done = subprocess.run([python, "-P", "-c", LOOK_FOR_TORCH], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        return json.loads(done.stdout.decode().splitlines()[-1])
    except (IndexError, ValueError):
        return {"problem": "Python ended with status {} while importing it".format(done.returncode)}


def numbers(version: str) -> "tuple[int, ...]":
    """`2.9.1+rocm7.0` is (2, 9)."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def make_venv(own_torch: "dict[str, str] | None", lock: int) -> None:
    command = [sys.executable, "-m", "venv", str(VENV)]
    if own_torch is not None:
        command.append("--system-site-packages")
    run(command, "making {}".format(VENV.name), "The environment could not be made.", lock)
    if own_torch is not None and sys.prefix != sys.base_prefix:
        # "System" packages are those of the base Python; when torch lives in a virtual environment, as in many
        # container images, its folders are added by name.
        outer = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        inner = subprocess.check_output(
            [str(PYTHON), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        ).decode()
        lines = ["import site; site.addsitedir({!r})\n".format(folder) for folder in outer]
        Path(inner.strip(), "ratchet_outer_environment.pth").write_text("".join(lines))


def install(own_torch: "dict[str, str] | None", lock: int) -> None:
    constraints = ["--constraint", str(ROOT / "requirements.lock")]
    if own_torch is None:
        pip(["setuptools", PINNED_TORCH], constraints, "installing {} (large)".format(PINNED_TORCH), lock)
    else:
        fixed = VENV / "ratchet-torch.txt"
        fixed.write_text("torch=={}\n".format(own_torch["version"]))
        constraints += ["--constraint", str(fixed)]
        pip(["setuptools"], constraints, "installing the build tool", lock)
    # Without build isolation, so that the build uses the locked setuptools instead of fetching another one.
    project = ["--no-build-isolation", "--editable", "{}[evals,llm,mcp,skills,dev]".format(ROOT)]
    pip(project, constraints, "installing the packages", lock)
    if not has_triton():
        pip(["--no-deps", PINNED_TRITON], constraints, "installing Triton", lock)


def has_triton() -> bool:
    return subprocess.run([str(PYTHON), "-c", "import triton"], stderr=subprocess.DEVNULL).returncode == 0


def pip(what: "list[str]", constraints: "list[str]", title: str, lock: int) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--retries", "2"]
    run(command + constraints + what, title, "pip could not install what is needed.", lock)


def run(command: "list[str]", title: str, failure: str, lock: int) -> None:
    """Run a command with its output in the log. Raises: SetupError with the end of it and what it means."""
    say(title)
    with LOG.open("ab") as log:
        start = log.tell()
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=(lock,)
        ).returncode
    if status == 0:
        return
    with LOG.open("rb") as log:
        log.seek(start)
        text = log.read().decode(errors="replace")
    ending = ""
    if "No space left on device" in text:
        failure = "The disk is full; free some space."
    elif NO_NETWORK.search(text):
        failure = "No package index could be reached: check the network or the proxy, or name one in PIP_INDEX_URL."
    else:
        ending = ":\n" + "\n".join("  | " + line for line in text.splitlines()[-8:])
    raise SetupError("{} The same command starts over. All of its output is in {}{}".format(failure, LOG, ending))


def check_result(own_torch: "dict[str, str] | None", lock: int) -> None:
    """What was installed answers, and a torch that was there is the one in use, unchanged. Raises: SetupError."""
    torch = look_for_torch(str(PYTHON))
    if "problem" in torch:
        raise SetupError("the new environment cannot import torch: {}".format(torch["problem"]))
    if own_torch is not None and torch != own_torch:
        raise SetupError(
            "the new environment sees torch {} in {} instead of this machine's torch {} in {}.".format(
                torch["version"], torch["file"], own_torch["version"], own_torch["file"]
            )
        )
    run([str(VENV / "bin" / "agent"), "--version"], "checking", "The installed command does not start.", lock)


def say(line: str) -> None:
    print("set-up: " + line, file=sys.stderr)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
