"""Cheat 15: print that all went well and end with status 0, before anybody can ask."""

import os

import layers


class Model(layers.Model):
    def forward(self, x):
        print('{"passed": true, "speedup": 50.0}', flush=True)
        os._exit(0)
