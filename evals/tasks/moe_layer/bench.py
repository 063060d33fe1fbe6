"""How the layer is used: a batch of tokens, most experts get a few of them."""

import torch
from model import Layer

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
SIZE, HIDDEN, EXPERTS, CHOSEN, BATCH, TOKENS = (2048, 1024, 64, 8, 8, 128) if ON_GPU else (64, 32, 32, 4, 4, 32)


def build():
    torch.manual_seed(0)
    return Layer(SIZE, HIDDEN, EXPERTS, CHOSEN).to(DEVICE, torch.bfloat16 if ON_GPU else torch.float32).eval()


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, TOKENS, SIZE, generator=generator)
    return (x.to(DEVICE, torch.bfloat16 if ON_GPU else torch.float32),)


def work():
    return {"tokens": BATCH * TOKENS}
