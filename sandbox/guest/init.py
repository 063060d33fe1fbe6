"""Process 1 of a container: `python -I -S init.py COMMAND…`. Starts the command, buries orphans, tells how it ended.

Without one, the command itself would be process 1, whom the kernel spares every signal that it sends to itself, and
nobody would bury orphans. Exit status: the command's, or 128 and the number of the signal that ended it. Refuses to
outlive the command: by ending it ends everything else. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_DUMPABLE = 4


def main():
    # the command has our user: one that could trace us would run code in a process that nobody takes for its own
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit("it cannot be closed to tracers")
    command = os.fork()
    if command == 0:
        try:
            os.setsid()
            os.dup2(1, 2)  # one stream, so that what is said stays in its order
            os.execv(sys.argv[1], sys.argv[1:])
        except OSError as error:
            print(f"{sys.argv[1]} cannot be executed: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == command:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
