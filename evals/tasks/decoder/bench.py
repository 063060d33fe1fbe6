"""How the decoder is used: one forward pass over a prompt."""

import torch
from model import Decoder, DecoderConfig

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"

CONFIG = DecoderConfig() if ON_GPU else DecoderConfig(256, 64, 224, 8, 8, 2)


def build():
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = Decoder(CONFIG)
    return model.to(torch.bfloat16 if ON_GPU else torch.float32).eval()


def shapes():
    if ON_GPU:
        return [{"batch": 1, "tokens": 32}, {"batch": 1, "tokens": 1024}, {"batch": 8, "tokens": 512}]
    return [{"batch": 1, "tokens": 32}]


def inputs(seed, batch=1, tokens=32):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(CONFIG.vocab_size, (batch, tokens), generator=generator).to(DEVICE),)


def work(batch=1, tokens=32):
    return {"tokens": batch * tokens}
