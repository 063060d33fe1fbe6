"""Do one hostile thing after another, each asked for by name over the channel, and tell what came of it.

Does not do anything of its own accord. Standard library only.
"""

from __future__ import annotations

import os

from . import attack_bounds, attack_reach, attack_rights
from .wire import connect


def _named(name):
    for module in (attack_reach, attack_rights, attack_bounds):
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


def main():
    channel = connect(os.environ["RATCHET_CHANNEL"])
    while True:
        asked = channel.receive()
        try:
            told = {"told": _named(asked["attack"])(**asked["arguments"])}
        except Exception as error:
            told = {"failed": f"{type(error).__name__}: {error}"}
        channel.send(told)
