"""How the calibration target is used."""

import torch
from model import Wasteful

FEATURES = 64


def build():
    torch.manual_seed(0)
    return Wasteful(FEATURES).eval()


def inputs(seed):
    return (torch.randn(16, FEATURES, generator=torch.Generator().manual_seed(seed)),)
