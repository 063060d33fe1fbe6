"""Fork one worker after the other from a process that has imported what each of them needs, and nothing of a target.

A worker begins when the host first says something on the channel. When the host lets go of it, all that it started is
ended and what it left is removed; then the channel is connected anew, for the next. A worker that ends by itself takes
this process along. Where a fork would not be like a start, this process is itself the only worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import shutil
import signal
import sys

from .wire import connect

_PR_SET_DUMPABLE = 4
TRIAL_S = 30  # a device's context takes a second
# what is left in them goes from one worker to the next; a container has its own
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")
HARMLESS = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")


def channel_of_worker(address, names):
    """Import the modules of these names, as far as that goes; returns a channel in every worker."""
    channel = connect(address)
    before = _open_files()
    for name in names:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)
    if _why_unsafe(before):
        return channel
    gc.collect()
    gc.freeze()  # so that no collection in a worker copies the pages of it all
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    while True:
        _begin(channel)
        _dumpable(False)  # a worker has our user: it must not get at the memory that the next one starts from
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        worker = os.fork()
        if worker == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(woken)
            os.close(wake)
            _dumpable(True)
            _reseed()
            return channel
        _until_let_go(channel, worker, woken)
        _end_all()
        _clear_away()
        channel.close()
        channel = connect(address)


def loaded_from_outside(tree):
    """Names of the modules that come from files outside the target and the guest, in the order of their loading."""
    ours = tuple(os.path.realpath(each) + os.sep for each in (tree, os.path.dirname(__file__)))
    files = {name: getattr(getattr(each, "__spec__", None), "origin", None) for name, each in [*sys.modules.items()]}
    return [
        name
        for name, file in files.items()
        if isinstance(file, str) and os.path.isabs(file) and not os.path.realpath(file).startswith(ours)
    ]


def _open_files():
    """What each descriptor is, but for what is harmless."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {each for each in found.difference(HARMLESS) if not each.endswith("/fd")}


def _why_unsafe(before):
    """Why a fork of this process would not be like a process that was started; empty when it would.

    A device's context does not outlive a fork, other threads do not, and a file would be shared by all workers.
    """
    if os.getuid() == 0:
        return "its user may end every process"
    if not _fork_can_use_device():
        return "a fork cannot use the device"
    if len(os.listdir("/proc/self/task")) > 1:  # after a fork, before which libraries end what threads they can
        return "there are other threads"
    if opened := _open_files() - before:
        return f"{min(opened)} is open"
    return ""


def _fork_can_use_device():
    """Tried out, since libraries of a device may be loaded in ways that do not outlive a fork."""
    tried = os.fork()
    if tried == 0:
        status = 1
        try:
            signal.alarm(TRIAL_S)
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_available():
                torch.ones(1, device="cuda").item()
            status = int(torch is not None and torch.cuda._is_in_bad_fork())
        finally:
            os._exit(status)
    return os.waitpid(tried, 0)[1] == 0


def _begin(channel):
    """Wait until the host says something; end when it is gone."""
    select.select([channel], [], [])
    if channel.is_closed():
        os._exit(0)


def _until_let_go(channel, worker, woken):
    """Raises: SystemExit, as the worker ended, when it has ended by itself."""
    poll = select.poll()
    poll.register(channel, select.POLLRDHUP)
    poll.register(woken, select.POLLIN)
    while not any(descriptor == channel.fileno() for descriptor, _ in poll.poll()):
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended and not any(descriptor == channel.fileno() for descriptor, _ in poll.poll(0)):
            _end_as(os.waitstatus_to_exitcode(status))


def _end_as(code):
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL cannot be caught
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _end_all():
    """Every process of this user but this one: nobody else's are in reach of it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _clear_away():
    for folder in SHARED_FOLDERS:
        with contextlib.suppress(OSError), os.scandir(folder) as inside:
            for entry in inside:
                _remove(entry)


def _remove(entry):
    with contextlib.suppress(OSError):
        if entry.stat(follow_symlinks=False).st_uid != os.getuid():
            return
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def _dumpable(value):
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, int(value), 0, 0, 0)


def _reseed():
    """What took its state from the machine when it was imported."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
