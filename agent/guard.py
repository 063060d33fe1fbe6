"""Turn whatever ends a command into one message on stderr and one exit status.

This is the only place in the project that catches every exception. An unexpected one is reported as a fault of Ratchet,
with the path of its traceback.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from sandbox.errors import DiskFull, RatchetError, means_disk_full

# Statuses without an exception class; docs/exit-status.md lists all.
OTHER_STATUSES = {
    0: 'The command did what it was asked; for a run this includes "nothing kept".',
    3: "The change that `agent verify` or `agent measure` was asked about is not right, or no gain was shown.",
    70: "A fault of Ratchet itself, not of your target; the message says where the traceback is.",
    129: "The terminal went away (SIGHUP); the run can be resumed.",
    130: "Interrupted (Ctrl-C); the run can be resumed.",
    141: "The reader of the output closed it (a pipe into `head`, for instance).",
    143: "Asked to stop (SIGTERM); the run can be resumed.",
}

# Statuses of earlier versions, never used again with another meaning.
RETIRED_STATUSES = {
    58: "`SliceTooShort`: went with `--stop-after`. A run ends by `--budget-minutes` or by a signal.",
    142: "The time of `--stop-after` was over. A run that a signal stops ends with 129, 130 or 143.",
}


@dataclass
class Doing:
    """The run that a command works on, for the message at its end."""

    debug: bool = False
    run_dir: Path | None = None  # may not have been made yet
    reference: str = ""  # what `agent resume` takes for this run

    def folder(self) -> Path | None:
        return self.run_dir if self.run_dir is not None and self.run_dir.is_dir() else None


class Stopped(KeyboardInterrupt):
    """SIGTERM or SIGHUP, raised like Ctrl-C so that every started process is stopped."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


Handler = Callable[[Namespace, Doing], int]


def call(handler: Handler, arguments: Namespace, program: str) -> int:
    """Run one command; returns its exit status. Raises only SystemExit, of argparse."""
    doing = Doing(debug=getattr(arguments, "debug", False))
    _stop_in_order()
    try:
        with stop_first():
            return handler(arguments, doing)
    except RatchetError as error:
        return _told(program, error, doing)
    except BrokenPipeError:
        # Python flushes stdout again at exit and would complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as stop:
        number = stop.signal_number if isinstance(stop, Stopped) else signal.SIGINT
        resume = f"; `agent resume {doing.reference}` goes on from there" if doing.folder() else ""
        _say(f"{program}: interrupted{resume}")
        return 128 + number
    except Exception as error:
        if _disk_full(error):
            name = getattr(error, "filename", None)
            where = f" while writing {name}" if name else ""
            hint = "Free some space; what was proven is kept and the run can be resumed."
            return _told(program, DiskFull(f"The disk is full{where}.", hint=hint), doing)
        return _our_fault(program, error, doing)


@contextlib.contextmanager
def stop_first() -> Iterator[None]:
    """What fails while it is being stopped, as the stop. Raises: KeyboardInterrupt."""
    try:
        yield
    except Exception as error:
        if (stop := _stopped_in(error)) is not None:
            raise stop from error
        raise


def _stopped_in(error: BaseException) -> KeyboardInterrupt | None:
    """The stop during which it was raised: what is cut short may leave something that cannot be cleared away. What is
    raised instead of a stop, on purpose, is none.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return found


def _disk_full(error: Exception) -> bool:
    if isinstance(error, OSError):
        return means_disk_full(error.errno)
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"


def _told(program: str, error: RatchetError, doing: Doing) -> int:
    if doing.debug:
        traceback.print_exception(error)
    _say(f"{program}: {error.message}")
    if error.hint:
        _say(f"  {error.hint}")
    if doing.folder():
        _say(f"  What the run left so far: {doing.run_dir}")
    return error.exit_status


def _our_fault(program: str, error: Exception, doing: Doing) -> int:
    _say(f"{program}: this is a fault of Ratchet, not of your target: {type(error).__name__}: {error}")
    if doing.debug:
        traceback.print_exception(error)
    else:
        _say(f"  Traceback: {_keep_traceback(error, doing)}")
    if doing.folder():
        _say(f"  What was proven is kept; `agent resume {doing.reference}` goes on from there.")
    return 70


def _keep_traceback(error: Exception, doing: Doing) -> str:
    text = "".join(traceback.format_exception(error))
    folder = doing.folder() or Path(tempfile.gettempdir())
    try:
        with tempfile.NamedTemporaryFile("w", prefix="fault-", suffix=".txt", dir=folder, delete=False) as file:
            file.write(text)
    except OSError as refused:
        return f"could not be written ({refused}); the option --debug prints it"
    return file.name


def _say(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:  # stderr is closed; the exit status remains
        return


def _stop_in_order() -> None:
    """By default SIGTERM and SIGHUP end a program at once and leave its child processes running."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise Stopped(signal_number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # an ignored SIGHUP (nohup) stays ignored
            signal.signal(number, stop)
