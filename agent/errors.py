"""Errors of a run and of the command line.

    RatchetError                    1   (sandbox/errors.py)
    ├── SandboxError …             30   (sandbox/errors.py)
    ├── ToolError …                     (tools/errors.py)
    └── AgentError                 50   a run could not be started, continued or read
        ├── RunNotFound            51   no run of that name
        ├── RunInUse               52   another process is working on it
        ├── RunDamaged             53   its files do not fit together
        ├── RunOutdated            54   it was made by a version with another format of runs
        ├── RunExists              55   a run of that name is already there
        ├── NothingWasKept         57   that run kept nothing to judge again   (agent/past_run.py)
        ├── BudgetTooShort         59   its time was over before anything could be judged
        ├── PackUnusable           96   a folder is no skill pack, or its name is taken   (agent/skill_packs)
        ├── Declined               56   the person at the terminal said no
        ├── WrongUsage              2   the same status as argparse's, for what only we can check
        ├── StackError             26   the stack is not what it must be     (agent/repository/stack.py)
        └── LedgerCorrupt          27   its rows are not those we wrote      (agent/records/ledger.py)

Statuses that are no exception (70 an internal error, 130 interrupted, …) are in `agent/guard.py`.
"""

from __future__ import annotations

from sandbox.errors import RatchetError


class AgentError(RatchetError):
    """A run could not be started, continued or read."""

    exit_status = 50


class RunNotFound(AgentError):
    """There is no run of that name in the folders looked at."""

    exit_status = 51


class RunInUse(AgentError):
    """Another process is working on this run."""

    exit_status = 52


class RunDamaged(AgentError):
    """The files of a run do not fit together, so nothing was done with it."""

    exit_status = 53


class RunOutdated(AgentError):
    """The run was made by a version of Ratchet with another format of runs, so this one cannot continue it."""

    exit_status = 54


class RunExists(AgentError):
    """A run of that name is already there."""

    exit_status = 55


class BudgetTooShort(AgentError):
    """The time of a run was over before the original was measured, so that nothing could be judged."""

    exit_status = 59


class Declined(AgentError):
    """The person at the terminal answered no, so nothing was run."""

    exit_status = 56


class WrongUsage(AgentError):
    """Wrong usage: an unknown option, or a value that cannot be."""

    exit_status = 2
