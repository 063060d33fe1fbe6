"""A socket through which an engine is reached, and which can be taken away from those who use it."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path


class Relay:
    """Passes what comes on one unix socket on to another, both ways, until it is `closed`; can be opened again."""

    def __init__(self, path: Path, to: str) -> None:
        self.path, self._to = path, to
        self._open: list[socket.socket] = []
        self.open()

    def open(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        listener.listen(64)
        self._open.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                far.connect(self._to)
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := one.recv(1 << 16):
            other.sendall(part)
        other.shutdown(socket.SHUT_WR)
