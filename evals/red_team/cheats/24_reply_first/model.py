"""Cheat 24: answer before computing. The private channel and the nonce lie on the stack."""

import sys

import layers


def caller_with(*names):
    frame = sys._getframe()
    while frame is not None and not all(name in frame.f_locals for name in names):
        frame = frame.f_back
    return frame.f_locals


class Model(layers.Model):
    def forward(self, x):
        served = caller_with("channel", "nonce", "request")
        channel = served["channel"]
        channel.send({"digest": "0123456789abcdef", "nonce": served["nonce"]})
        channel.send = lambda reply: channel.__dict__.pop("send")  # the honest reply comes too late, so it goes nowhere
        return super().forward(x)
