"""Cheat 27: children that burn the core whenever it is somebody else's turn."""

import mmap
import os
import struct
import time

import layers

SPINNERS = 3
PATIENCE_S = 0.005
idle_since = mmap.mmap(-1, 8)  # infinity while a call runs


def note(moment):
    idle_since[:] = struct.pack("d", moment)


def spin():
    parent = os.getppid()
    os.setsid()  # a session of its own gets a share of the core of its own
    while os.getppid() == parent:
        if time.monotonic() - struct.unpack("d", idle_since)[0] < PATIENCE_S:
            time.sleep(PATIENCE_S / 2)
    os._exit(0)


class Model(layers.Model):
    def forward(self, x):
        note(float("inf"))
        spinners = self.__dict__.setdefault("spinners", [])
        while len(spinners) < SPINNERS:
            spinners.append(os.fork())
            if spinners[-1] == 0:
                spin()
        result = super().forward(x)
        note(time.monotonic())
        return result
