"""Checks that a command reaches nobody over a network: addresses of this machine, abstract sockets, its hypervisor.

Only this machine is called: what listens here is our own, for a moment, and takes nothing but a token.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.sandbox.attacks.bench import Bench, checks_in, claim

_SIOCGIFADDR = 0x8915


def _own_addresses() -> Iterator[tuple[socket.AddressFamily, str]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                told = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                yield socket.AF_INET, socket.inet_ntoa(told[20:24])
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0]))
            if not address.startswith("fe80:"):  # which would need the name of a device
                yield socket.AF_INET6, address


def _reached(bench: Bench, kind: socket.SocketKind) -> list[str]:
    """The addresses of this machine, each with a socket on a port of its own, where the token arrived."""
    with contextlib.ExitStack() as stack:
        sockets = {}
        for family, host in _own_addresses():
            sock = stack.enter_context(socket.socket(family, kind))
            with contextlib.suppress(OSError):
                sock.bind((host, 0))
                if kind == socket.SOCK_STREAM:
                    sock.listen(1)
                sockets[int(family), (host, int(sock.getsockname()[1]))] = sock
        bench.ask("say_to", kind=int(kind), addresses=list(sockets), token=bench.token)
        return [f"{address}" for (_, address), sock in sockets.items() if _heard(sock, bench.token)]


def _heard(sock: socket.socket, token: str) -> bool:
    """Whether a peer has said it to this socket."""
    if not select.select([sock], [], [], 0)[0]:
        return False
    if sock.type == socket.SOCK_STREAM:
        with sock.accept()[0] as peer:
            peer.settimeout(1.0)
            return peer.recv(256) == token.encode()
    return sock.recv(256) == token.encode()


@claim("a listener of this machine cannot be reached, on any of its addresses", "no network")
def tcp(bench: Bench) -> object:
    return _reached(bench, socket.SOCK_STREAM)


@claim("a datagram reaches nobody, as a question to a name server would", "no network")
def udp(bench: Bench) -> object:
    return _reached(bench, socket.SOCK_DGRAM)


@claim("an abstract socket of this machine cannot be reached", "no network")
def abstract(bench: Bench) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        name = f"\0ratchet-check-{bench.token}"
        sock.bind(name)
        sock.listen(1)
        bench.ask("say_to", kind=int(sock.type), addresses=[(int(sock.family), name)], token=bench.token)
        return _heard(sock, bench.token)


@claim("no socket leads past the namespace of the network, to the machine's hypervisor", "no way to the hypervisor")
def vsock(bench: Bench) -> object:
    return bench.ask("make_sockets", families=[int(getattr(socket, "AF_VSOCK", 40))])


CHECKS = checks_in(globals())
