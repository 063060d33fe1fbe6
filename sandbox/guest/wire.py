"""The channel between host and guest: length-prefixed JSON frames on a unix socket.

Standard library only, because both sides use it. Never pickle, never more than `MAX_FRAME` bytes, and never
stdout: what a target prints is not a message.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

MAX_FRAME = 4 << 20
AT_ONCE = 4 << 10  # bytes that are read with one call of the kernel, of a message whose length is not known yet
_to_json = json.JSONEncoder(separators=(",", ":")).encode  # made once: that takes as long as a short message
_LENGTH = struct.Struct("<I")


class ChannelClosed(Exception):
    """The other side is gone."""


class BadFrame(Exception):
    """The other side sent something that is no frame of ours."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as it is sent. Raises: BadFrame (too long)."""
    data = _to_json(message).encode()
    if len(data) > MAX_FRAME:
        raise BadFrame(f"a frame of {len(data)} bytes is over the limit of {MAX_FRAME}")
    return _LENGTH.pack(len(data)) + data


def decode(received: bytes) -> dict[str, Any]:
    """What was received. Raises: BadFrame."""
    try:
        found = json.loads(received)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadFrame("not a JSON object")
    return found


class Channel:
    """JSON objects over a connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._socket.setblocking(False)
        self._ahead = b""  # what has arrived of the messages after the last one

    def send(self, message: dict[str, Any], timeout_s: float | None = None) -> None:
        """The host gives every message a time limit, because the guest may never read.

        After a TimeoutError a part of the message may be on its way, so that the channel is of no more use.
        Raises: TimeoutError, ChannelClosed, BadFrame (too long).
        """
        self.send_frame(encode(message), timeout_s)

    def send_frame(self, data: bytes, timeout_s: float | None = None) -> None:
        """The same of a message that was made before its time is taken: see `encode`."""
        deadline = None if timeout_s is None else time.perf_counter() + timeout_s
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                left = None if deadline is None else deadline - time.perf_counter()
                if left is not None and left <= 0:
                    raise TimeoutError("nobody reads what is sent") from None
                select.select([], [self._socket], [], left)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None, *, spin_s: float = 0.0) -> dict[str, Any]:
        """The next message.

        `spin_s` polls that long before it sleeps: waking a sleeping process costs tens of microseconds and is noisy.
        Raises: TimeoutError, ChannelClosed, BadFrame.
        """
        return decode(self.receive_frame(timeout_s, spin_s=spin_s))

    def receive_frame(self, timeout_s: float | None = None, *, spin_s: float = 0.0) -> bytes:
        """What `decode` reads. Raises: TimeoutError, ChannelClosed, BadFrame."""
        start = time.perf_counter()
        deadline = None if timeout_s is None else start + timeout_s
        got = bytearray(self._ahead or self._some(AT_ONCE, deadline, start + spin_s))
        self._ahead = b""  # if the rest does not come in time, the channel is of no more use
        while len(got) < _LENGTH.size:
            got += self._some(AT_ONCE, deadline, start + spin_s)
        (size,) = _LENGTH.unpack_from(got)
        if size > MAX_FRAME:
            raise BadFrame(f"a frame of {size} bytes is over the limit of {MAX_FRAME}")
        end = _LENGTH.size + size
        while len(got) < end:
            got += self._some(min(end - len(got), 1 << 20), deadline, start + spin_s)
        if len(got) > end:
            self._ahead = bytes(got[end:])
        return bytes(got[_LENGTH.size : end])

    def _some(self, most: int, deadline: float | None, spin_until: float) -> bytes:
        """So many bytes of what has arrived, at least one."""
        while True:
            try:
                part = self._socket.recv(most)
            except BlockingIOError:
                now = time.perf_counter()
                if now < spin_until:
                    continue
                if deadline is not None and now >= deadline:
                    raise TimeoutError("no answer in time") from None
                select.select([self._socket], [], [], None if deadline is None else deadline - now)
            except ConnectionResetError as error:
                raise ChannelClosed(str(error)) from error
            else:
                if not part:
                    raise ChannelClosed("the other side closed the channel")
                return part

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def connect(path: str) -> Channel:
    """The guest's side: connect to the socket the host listens on."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return Channel(sock)
