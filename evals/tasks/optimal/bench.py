"""How the projection is used: one large batch of rows."""

import torch
from model import Projection

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
ROWS, FEATURES = (4096, 8192) if ON_GPU else (512, 768)
DTYPE = torch.bfloat16 if ON_GPU else torch.float32


def build():
    torch.manual_seed(0)
    return Projection(FEATURES, FEATURES).to(DEVICE, DTYPE).eval()


def inputs(seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)  # drawn where it is used: a host is slow at so many
    return (torch.randn(ROWS, FEATURES, generator=generator, device=DEVICE, dtype=DTYPE),)
