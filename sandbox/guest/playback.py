"""Requests from a file in place of a channel: for a program that a profiler runs, to which nobody talks.

The first answer that is an error ends it, with that error on stderr and exit status 1.
"""

from __future__ import annotations

import json

from .wire import ChannelClosed


class Playback:
    def __init__(self, path):
        with open(path) as file:
            self._left = iter(json.load(file))

    def receive(self, spin_s=0.0):
        request = next(self._left, None)
        if request is None:
            raise ChannelClosed("these were all")
        return {"nonce": 0, **request}

    def send(self, reply):
        if "error" in reply:
            raise SystemExit(reply["error"]["message"])
