"""Tell a full or failing disk from a fault of the code that met it.

A candidate that reports a full disk where there is room is itself at fault; otherwise it could end every run.
"""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.contract import Limits
from sandbox.errors import means_disk_full
from sandbox.supervision.disk import room

# what a worker may have failed to write is not known; a disk with less is as good as full
_ROOM_BYTES = Limits().free_disk_bytes
_OF_THE_MACHINE = (errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_SAYINGS = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))


def looks_full(kind: str, message: str, signal_number: int | None) -> bool:
    """Whether a worker's failure may come from a full disk. SIGBUS: a page of a mapped file found no room."""
    said = kind in ("disk_full", "disk_limit") or any(saying in message for saying in _SAYINGS)
    return said or signal_number == signal.SIGBUS


def is_full(folder: Path) -> bool:
    """Whether we could not write 256 MiB there now, or the floor is reached; quotas count. Raises: OSError."""
    left = room(str(folder))
    if left is not None and left.below(_ROOM_BYTES):
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
    except OSError as error:
        if not means_disk_full(error.errno):
            raise
        return True
    return False


@contextmanager
def in_the_hands_of_a_worker() -> Iterator[None]:
    """Ignore OSErrors that a worker can cause by changing its folders; errors of this machine pass through."""
    try:
        yield
    except OSError as error:
        if is_of_the_machine(error):
            raise


def is_of_the_machine(error: OSError) -> bool:
    """Whether a worker cannot cause it by changing its folders."""
    return means_disk_full(error.errno) or error.errno in _OF_THE_MACHINE
