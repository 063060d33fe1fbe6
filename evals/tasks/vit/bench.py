"""transformers' vision transformer with random weights: batches of pictures."""

import time

import torch
from transformers import ViTConfig, ViTForImageClassification

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
BATCH = 32 if ON_GPU else 2

SIZES = (
    dict(
        image_size=224,
        patch_size=16,
        hidden_size=768,
        intermediate_size=3072,
        num_attention_heads=12,
        num_hidden_layers=12,
    )
    if ON_GPU
    else dict(
        image_size=64, patch_size=8, hidden_size=64, intermediate_size=256, num_attention_heads=4, num_hidden_layers=4
    )
)


def main(calls=5):
    torch.manual_seed(0)
    config = ViTConfig(num_labels=1000, **SIZES)
    model = ViTForImageClassification(config).to(DEVICE, DTYPE).eval()
    with torch.no_grad():
        for _ in range(calls):
            pictures = torch.randn(BATCH, 3, config.image_size, config.image_size).to(DEVICE, DTYPE)
            start = time.perf_counter()
            labels = model(pictures).logits.argmax(-1)
            if ON_GPU:
                torch.cuda.synchronize()
            print(f"{(time.perf_counter() - start) * 1e3:.2f} ms, {tuple(labels.shape)}")


if __name__ == "__main__":
    main()
