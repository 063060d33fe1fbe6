"""Cheat 15, politely: `sys.exit(0)`, with the good news printed at exit."""

import atexit
import sys

import layers

atexit.register(print, '{"passed": true, "speedup": 50.0}')


class Model(layers.Model):
    def forward(self, x):
        sys.exit(0)
