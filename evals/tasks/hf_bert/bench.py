"""transformers' BERT with random weights: sentences of different lengths, padded to the longest that is allowed."""

import time

import torch
from transformers import BertConfig, BertModel

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
BATCH, TOKENS = (32, 512) if ON_GPU else (4, 64)

SIZES = (
    dict(vocab_size=30522, hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_hidden_layers=12)
    if ON_GPU
    else dict(vocab_size=512, hidden_size=64, intermediate_size=256, num_attention_heads=4, num_hidden_layers=4)
)


def sentences(config):
    """Tokens, and a mask that is 1 where a token is and 0 where nothing follows any more."""
    lengths = torch.randint(TOKENS // 8, TOKENS // 2, (BATCH, 1))
    mask = (torch.arange(TOKENS) < lengths).long()
    return torch.randint(1, config.vocab_size, (BATCH, TOKENS)) * mask, mask


def main(calls=5):
    torch.manual_seed(0)
    config = BertConfig(**SIZES)
    model = BertModel(config).to(DEVICE, DTYPE).eval()
    with torch.no_grad():
        for _ in range(calls):
            tokens, mask = (tensor.to(DEVICE) for tensor in sentences(config))
            start = time.perf_counter()
            pooled = model(input_ids=tokens, attention_mask=mask).pooler_output
            if ON_GPU:
                torch.cuda.synchronize()
            print(f"{(time.perf_counter() - start) * 1e3:.2f} ms, {tuple(pooled.shape)}")


if __name__ == "__main__":
    main()
