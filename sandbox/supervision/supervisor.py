"""Stand between the agent and one command: start it, drain its output, watch its limits, end all of it, say how.

Does not outlive the agent, or leave anything behind when it ends itself. A script for the agent's own
interpreter: it reads one `Order` as a line from stdin, and writes JSON lines to the descriptor named by its only
argument: {"started": …} or {"failed": …}, then {"ended": …}, which the agent confirms with another line on stdin.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started without any search path but the standard library's
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from sandbox.kernel import ending, isolation, process_tree
from sandbox.supervision.launch import LaunchFailure, Order, launch
from sandbox.supervision.watching import Bounds, LimitWatch, Output, Signals, watch


def supervise(order: Order, child: int, output: Output, signals: Signals) -> dict[str, Any]:
    """Watch until it ends or must end; then end the rest. Returns the fields of `Ended` and `cpu_time_s`."""
    bounds = Bounds(*order.bounds)
    limits = LimitWatch(bounds, lambda: process_tree.descendants_quickly(os.getpid()))
    ended: dict[int, int] = {}

    def is_over() -> bool:
        ended.update(ending.bury() or {})
        return child in ended

    reason = watch(bounds, output, limits, signals, is_over)
    _kill_groups(order)
    ended = {**ending.end_our_descendants(uid=order.uid), **ended}
    output.drain()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # without a status it is stuck in a driver: it has been sent a SIGKILL and will follow it some day
    code = os.waitstatus_to_exitcode(ended[child]) if child in ended else -signal.SIGKILL
    if order.contains and code > 128:
        code = 128 - code  # what contains the command tells of its signal so
    return {
        "status": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "reason": reason or ("signal" if code < 0 else "exited"),
        "output_tail": output.tail(),
        "output_bytes": output.count,
        "cpu_time_s": used.ru_utime + used.ru_stime,
    }


def _kill_groups(order: Order) -> None:
    for path in order.join:
        with contextlib.suppress(OSError):  # Linux before 5.14 has no such file
            Path(path).with_name("cgroup.kill").write_text("1")


def _clear_away(order: Order) -> None:
    for path in (*(Path(file).parent for file in order.join), *map(Path, order.litter)):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def main() -> int:
    report = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    os.set_inheritable(report.fileno(), False)
    order = Order(**json.loads(sys.stdin.readline()))
    signals = Signals()
    isolation.die_with_parent(signal.SIGTERM)
    if os.getppid() != order.host_pid:
        return 1  # the agent ended before it was asked to take us along
    isolation.adopt_orphans()
    try:
        child, output = launch(order)
    except LaunchFailure as failure:
        said = {"failed": {"stage": failure.stage, "error_number": failure.error_number, "text": failure.text}}
        print(json.dumps(said), file=report, flush=True)
        return 0
    isolation.close_to_tracers()
    if os.getppid() != order.host_pid:
        signals.stop_asked = True
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"started": {"child": child}}), file=report, flush=True)
    try:
        ended = supervise(order, child, Output(output), signals)
    except BaseException:
        ending.end_our_descendants(uid=order.uid)
        raise
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"ended": ended}), file=report, flush=True)
    if not sys.stdin.readline():  # nobody has heard it: the agent's end of the pipe is closed
        _clear_away(order)
    return 0


if __name__ == "__main__":
    os._exit(main())  # all is said and buried; tidying up the interpreter would take as long as ending the command
