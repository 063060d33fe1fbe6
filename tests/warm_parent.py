"""Import what workers import once, then fork a supervisor with its command for each that is asked for.

A script: `python warm_parent.py DESCRIPTOR`, which is of a listening unix socket. Each connection is one command: see
`tests/forking.py`. By closing it ends the command.
"""

import sys

AT_START = frozenset(sys.modules)  # what every Python has loaded before a script asks for more

import atexit  # noqa: E402
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import fcntl  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import os  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import traceback  # noqa: E402
import types  # noqa: E402
import warnings  # noqa: E402

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from sandbox.supervision import supervisor  # noqa: E402

del sys.path[-1]

# glibc reads these when a program starts, and through `mallopt` afterwards
MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_PERTURB_": -6,
}
AT_IMPORT = {"TRITON_INTERPRET", "PYTHONPATH"}  # what has been read by the time of a fork
# On a machine with a GPU, children of a parent that has imported Inductor cannot use it ("Cannot re-initialize CUDA").
ACCELERATORS = ("/dev/kfd", "/dev/nvidiactl")
MODULES = ("torch", "pytest", "hypothesis", "langsmith", "torch._dynamo", "torch._inductor.compile_fx", "triton")


def import_all():
    for name in MODULES if not any(map(os.path.exists, ACCELERATORS)) else MODULES[:4]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose the other threads"
    gc.collect()
    gc.freeze()  # so that no collection in a child copies the pages of it all


def serve(listener):
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:  # nothing is ever said on it: whoever started us is gone
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            supervise(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


class Signals(supervisor.Signals):
    """The other side asks for the end by closing its end of the connection, too."""

    def __init__(self):
        super().__init__()
        signal.signal(signal.SIGIO, self._look)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
        self._look()

    def _look(self, *_):
        """The signal may also tell, late, of the order that has been read."""
        self.stop_asked = self.stop_asked or bool(select.select([0], [], [], 0)[0])


def supervise(connection):
    """Be the supervisor of one command."""
    os.dup2(connection.fileno(), 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    python = sys.stdin.readline().rstrip("\n")
    connection.sendall(f"{os.getpid()} {os.getppid()}\n".encode())
    sys.argv[1] = str(os.dup(connection.fileno()))
    connection.close()
    execute = os.execvpe

    def become(file, argv, env):
        """Run a script for this interpreter here; execute anything else."""
        os.execvpe = execute
        if file != python or not argv[1].endswith(".py") or not AT_IMPORT.isdisjoint(env):
            os.execvpe(file, argv, env)
        keep_only(0, 1, 2)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGIO):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        as_started_with(env)
        run(argv[1], argv[1:])

    os.execvpe, supervisor.Signals = become, Signals
    os._exit(supervisor.main())


def keep_only(*kept):
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in kept:
            with contextlib.suppress(OSError):  # the one that listed the folder
                os.close(descriptor)


def as_started_with(env):
    """Bring about what an interpreter does with these variables when it starts."""
    import tempfile

    for name in [name for name in sys.modules if name.partition(".")[0] == "sandbox"]:
        del sys.modules[name]  # a target may have its own
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    sys.pycache_prefix = env.get("PYTHONPYCACHEPREFIX")
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    if env.get("PYTHONWARNINGS"):
        warnings.simplefilter(env["PYTHONWARNINGS"])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)
    libc = ctypes.CDLL(None)
    for name, parameter in MALLOC.items():
        if name in env:
            libc.mallopt(parameter, ctypes.c_int(min(int(env[name]), 2**31 - 1)))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(int(env.get("OMP_NUM_THREADS") or os.cpu_count()))
    config = sys.modules.get("torch._inductor.config")
    if config is not None and "TORCHINDUCTOR_COMPILE_THREADS" in env:
        config.compile_threads = int(env["TORCHINDUCTOR_COMPILE_THREADS"])


def run(script, argv):
    """As `python SCRIPT …` does."""
    sys.argv = list(argv)
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    main = types.ModuleType("__main__")
    main.__file__ = script
    bootstraps = os.path.basename(script) == "bootstrap.py"
    if bootstraps:
        main.__name__ = "bootstrap"  # so that it does not begin before it is told what was there at the start
    sys.modules["__main__"] = main
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    status = 1
    try:
        exec(code, main.__dict__)
        if bootstraps:
            main.__name__, main.AT_START = "__main__", AT_START
            main.main()
        status = 0
    except SystemExit as asked:
        status = exit_status(asked.code)
    except BaseException:
        traceback.print_exc()
    finally:
        leave(status)


def exit_status(code):
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def leave(status):
    """As an interpreter that ends, but for taking it apart, which takes 0.3 s and says of Triton that it leaks."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    listening = socket.socket(fileno=int(sys.argv[1]))
    import_all()
    serve(listening)
