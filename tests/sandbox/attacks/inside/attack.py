"""Do one hostile thing after another, each asked for by name over the channel, and tell what came of it.

Standard library only.
"""

from __future__ import annotations

import os

from . import attack_bounds, attack_reach, attack_rights
from .wire import connect

_ATTACKS = {**vars(attack_reach), **vars(attack_rights), **vars(attack_bounds)}


def main():
    channel = connect(os.environ["RATCHET_CHANNEL"])
    while True:
        asked = channel.receive()
        try:
            told = {"told": _ATTACKS[asked["attack"]](**asked["arguments"])}
        except Exception as error:
            told = {"failed": f"{type(error).__name__}: {error}"}
        channel.send(told)
