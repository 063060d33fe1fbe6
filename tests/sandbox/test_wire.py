"""The channel between host and guest: neither side can hold up the other for longer than it is given."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sandbox.guest.wire import BadFrame, Channel, ChannelClosed, encode
from tests import guest

LARGE = {"x": "y" * (3 << 20)}  # more than a socket holds


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = map(Channel, socket.socketpair())
    yield one, other
    one.close()
    other.close()


def test_who_does_not_read_holds_nobody_up(ends: tuple[Channel, Channel]) -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="reads"):
        ends[0].send(LARGE, 0.2)
    assert 0.2 <= time.monotonic() - begun < 5


def test_who_reads_a_little_now_and_then_gains_no_time(ends: tuple[Channel, Channel]) -> None:
    stop = threading.Event()

    def sip() -> None:
        while not stop.wait(0.01):
            with contextlib.suppress(BlockingIOError):  # nothing is there yet
                ends[1]._socket.recv(1000)

    reader = threading.Thread(target=sip)
    reader.start()
    try:
        with pytest.raises(TimeoutError):
            ends[0].send(LARGE, 0.5)
    finally:
        stop.set()
        reader.join()


def test_what_is_read_arrives_however_large(ends: tuple[Channel, Channel]) -> None:
    heard = []
    reader = threading.Thread(target=lambda: heard.append(ends[1].receive(10)))
    reader.start()
    ends[0].send(LARGE, 10)
    reader.join()
    assert heard == [LARGE]


def test_a_frame_beyond_all_bounds_is_neither_sent_nor_waited_for_and_one_to_nobody_is_told(
    ends: tuple[Channel, Channel],
) -> None:
    with pytest.raises(BadFrame):
        ends[0].send({"x": "y" * (5 << 20)}, 1)
    ends[0]._socket.sendall((5 << 20).to_bytes(4, "little"))
    with pytest.raises(BadFrame):
        ends[1].receive(5)
    ends[1].close()
    with pytest.raises(ChannelClosed):
        ends[0].send(LARGE, 1)


def test_messages_that_arrive_together_or_in_pieces_are_told_apart(ends: tuple[Channel, Channel]) -> None:
    one, other = encode({"x": 1}), encode({"y": "z" * 5000})
    ends[0]._socket.sendall(one + other + one[:2])
    assert [ends[1].receive(5), ends[1].receive(5)] == [{"x": 1}, {"y": "z" * 5000}]
    later = threading.Timer(0.05, lambda: ends[0]._socket.sendall(one[2:] + other))
    later.start()
    assert [ends[1].receive(5), ends[1].receive(5)] == [{"x": 1}, {"y": "z" * 5000}]
    later.join()
    with pytest.raises(TimeoutError):
        ends[1].receive(0.01)
    ends[0].close()
    with pytest.raises(ChannelClosed):
        ends[1].receive(5)


def test_who_is_forked_while_it_answers_answers_nothing(ends: tuple[Channel, Channel]) -> None:
    """A script that forks goes on in both; one of them is asked."""

    class Forks:
        def op_fork(self) -> None:
            self.child = os.fork()

        def op_wait(self) -> dict[str, int]:
            return {"status": os.waitpid(self.child, 0)[1]}

    channel = guest.module("wire").Channel(ends[1]._socket)
    server = threading.Thread(target=guest.module("serve").serve, args=(channel, Forks()))
    server.start()
    for op in ("fork", "wait"):
        ends[0].send({"op": op, "nonce": op})
        assert ends[0].receive(10)["nonce"] == op
    ends[0].send({"op": "wait", "nonce": "again"})
    assert ends[0].receive(10)["nonce"] == "again", "nobody else has answered"
    ends[0]._socket.shutdown(socket.SHUT_RDWR)
    server.join()
