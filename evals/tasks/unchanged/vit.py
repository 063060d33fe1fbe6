"""transformers' vision transformer with random weights: pictures."""

import torch
from transformers import ViTConfig, ViTForImageClassification


def main(batches=4):
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_labels=10,
    )
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for _ in range(batches):
            labels = model(torch.randn(2, 3, 32, 32)).logits.argmax(-1)
    print(labels.tolist())


if __name__ == "__main__":
    main()
