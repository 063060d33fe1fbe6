"""The right to read hardware counters: whether a command needs it, and how it is given to one.

Does not give anything where they are open to all, and more than this one right where they are not. ROCm's profiler
takes its counters from whoever holds CAP_PERFMON, or from anybody where `kernel.perf_event_paranoid` is 2 or less
(omnistat pull request 313; docs.kernel.org, "Perf events and tool security").
"""

from __future__ import annotations

from pathlib import Path

from sandbox.errors import Unusable

CAPABILITY = "CAP_PERFMON"
_SETTING = Path("/proc/sys/kernel/perf_event_paranoid")
_OPEN = 2


def open_to_all() -> bool:
    """Whether no right is needed. False where the kernel does not tell."""
    try:
        return int(_SETTING.read_text()) <= _OPEN
    except (OSError, ValueError):
        return False


def grant_needed(wanted: bool) -> bool:
    """Whether a command that wants to read them must be given the right to."""
    return wanted and not open_to_all()


def rights(*, granted: bool) -> list[str]:
    """What `setpriv` is told, which takes every capability away but this one, where it is granted."""
    kept = f"-all,+{CAPABILITY.removeprefix('CAP_').lower()}" if granted else "-all"
    return [f"--inh-caps={kept}", f"--bounding-set={kept}", *([f"--ambient-caps={kept}"] if granted else [])]


def cannot_grant(why: str) -> Unusable:
    return Unusable(
        "counters",
        f"hardware counters are closed to this command: {why}",
        hint=f"Let an administrator set kernel.perf_event_paranoid to {_OPEN}, or profile without counters.",
    )
