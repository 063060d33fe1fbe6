"""Import what workers import once, then fork a process for every command that is asked for. See `tests/forking.py`.

A script: `python warm_parent.py DESCRIPTOR`, which is of a listening unix socket. Each connection is one command: it
brings a line of JSON, is answered with lines of JSON (`started`, `ended`), and by closing ends the command.
"""

import sys

AT_START = frozenset(sys.modules)  # what every Python has loaded before a script asks for more

import atexit  # noqa: E402
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import traceback  # noqa: E402
import types  # noqa: E402
import warnings  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
# glibc reads these when a program starts, and through `mallopt` afterwards
MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_PERTURB_": -6,
}
AT_IMPORT = {"TRITON_INTERPRET", "PYTHONPATH"}  # what has been read by the time of a fork
TAIL = 64 << 10
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
    """Returns only in a child, with the order of the command that it is to become."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:  # nothing is ever said on it: whoever started us is gone
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return watched(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def watched(connection):
    """Fork the command, and stay behind to watch it. Returns in the command."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with connection.makefile("r", encoding="utf-8") as lines:
        order = json.loads(lines.readline())
    output, output_end = os.pipe()
    told, telling = os.pipe()  # says why it could not be executed; else it is closed by the exec
    command = os.fork()
    if command == 0:
        os.setsid()
        order["telling"] = telling
        keep_only(output_end, telling)
        for number in (1, 2):
            os.dup2(output_end, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.close(output_end)
        return order
    os.close(output_end)
    os.close(telling)
    try:
        failed = b"".join(iter(lambda: os.read(told, 4096), b"")).decode()
        send(connection, {"failed": failed} if failed else {"started": os.getpid()})
        ended = watch(connection, command, output, order["output_bytes"])
        send(connection, {"ended": ended})
    finally:
        end_all({})
        os._exit(0)


def watch(connection, command, output, most_bytes):
    over, statuses, reason = os.pidfd_open(command), {}, None
    said = Output(output)
    while reason is None:
        ready, _, _ = select.select([connection, output, over], [], [])
        said.read()
        if over in ready:
            break
        if connection in ready:
            reason = "stopped"
        elif said.count > most_bytes:
            reason = "output limit"
    end_all(statuses)
    said.read()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(statuses[command])
    return {
        "status": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "reason": reason or ("signal" if code < 0 else "exited"),
        "output_tail": said.tail.decode(errors="replace"),
        "output_bytes": said.count,
        "cpu_time_s": used.ru_utime + used.ru_stime,
    }


class Output:
    """What a command has written: its last bytes and how many they were."""

    def __init__(self, descriptor):
        self.descriptor, self.tail, self.count = descriptor, b"", 0
        os.set_blocking(descriptor, False)

    def read(self):
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.descriptor, 1 << 16):
                self.tail, self.count = (self.tail + part)[-TAIL:], self.count + len(part)


def end_all(statuses):
    """Kill and bury all children, and theirs, which become ours; `statuses` gets how each ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            statuses[pid] = status
            continue
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            for child in children.read().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
        select.select([], [], [], 0.001)


def keep_only(*kept):
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in (0, 1, 2, *kept):
            with contextlib.suppress(OSError):  # the one that listed the folder
                os.close(descriptor)


def send(connection, message):
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def become(order):
    """Turn this process into the command: here where it is a script for this interpreter, else by executing it."""
    argv, env, telling = order["argv"], order["env"], order["telling"]
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order["file_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_bytes"],) * 2)
    if order["cpus"] is not None:
        os.sched_setaffinity(0, order["cpus"])
    try:
        os.chdir(order["cwd"])
        if argv[0] != order["python"] or not argv[1].endswith(".py") or not AT_IMPORT.isdisjoint(env):
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python ignores them, and that would be inherited
            os.set_inheritable(telling, False)
            os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(telling, str(error).encode())
        os._exit(127)
    os.close(telling)
    as_started_with(env)
    run(argv[1], argv[1:])


def as_started_with(env):
    """Bring about what an interpreter does with these variables when it starts."""
    import tempfile

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
    become(serve(listening))
