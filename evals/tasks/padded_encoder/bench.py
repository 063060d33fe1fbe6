"""How the encoder is used: batches of sentences, each padded to the longest that the model takes."""

import torch
from model import SentenceEncoder

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
VOCABULARY, SIZE, HEADS, LAYERS, LONGEST, SENTENCES = (
    (30522, 768, 12, 12, 512, 64) if ON_GPU else (512, 64, 4, 3, 128, 4)
)


def build():
    torch.manual_seed(0)
    model = SentenceEncoder(VOCABULARY, SIZE, HEADS, LAYERS, LONGEST)
    return model.to(DEVICE, torch.bfloat16 if ON_GPU else torch.float32).eval()


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(LONGEST // 16, LONGEST // 4, (SENTENCES, 1), generator=generator)
    mask = (torch.arange(LONGEST) < lengths).long()
    words = torch.randint(1, VOCABULARY, (SENTENCES, LONGEST), generator=generator) * mask
    return words.to(DEVICE), mask.to(DEVICE)


def work():
    return {"sentences": SENTENCES}
