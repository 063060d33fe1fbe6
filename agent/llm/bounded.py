"""Listen to a response no longer than its time, and to no endless line, whatever is sent: comments and pings as well.

The library's own limit of time begins again with every byte, and its reader gathers a line until it ends.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import httpx2

_BETWEEN = (b"\n\n", b"\r\n\r\n")  # events of a stream


class Bounded(httpx2.SyncByteStream):
    """The body of a response; it ends where its bounds are reached, and `ended_by` then says which."""

    def __init__(self, response: httpx2.Response, until: float, longest_event: int) -> None:
        """`until` is on time.monotonic(); `longest_event` in bytes."""
        assert isinstance(response.stream, httpx2.SyncByteStream)
        self._stream, self._until, self._longest = response.stream, until, longest_event
        self._network = response.extensions.get("network_stream")
        self.ended_by = ""

    def __iter__(self) -> Iterator[bytes]:
        timer = threading.Timer(max(0.0, self._until - time.monotonic()), self._out_of_time)
        timer.daemon = True
        timer.start()
        event, last = 0, b""
        try:
            for part in self._stream:
                last = last[-3:] + part
                ends = [(last.find(mark), last.rfind(mark) + len(mark)) for mark in _BETWEEN if mark in last]
                longest = event + min((first for first, _ in ends), default=len(part))
                event = len(last) - max(end for _, end in ends) if ends else longest
                if longest > self._longest:
                    self.ended_by = "length"
                if self.ended_by:
                    return
                yield part
        except httpx2.TransportError:
            if not self.ended_by:
                raise
        finally:
            timer.cancel()

    def close(self) -> None:
        self._stream.close()

    def _out_of_time(self) -> None:
        """A read that waits is woken by nothing less than the end of its connection."""
        self.ended_by = "time"
        line = self._network.get_extra_info("socket") if self._network is not None else None
        if line is not None:
            try:
                socket.socket.shutdown(line, socket.SHUT_RDWR)  # not of TLS, which would first send a close_notify
            except OSError:
                return  # it ended by itself
