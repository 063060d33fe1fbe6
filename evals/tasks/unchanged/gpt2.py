"""transformers' GPT-2 with random weights: prompts of different lengths in one batch."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main(batches=4):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=128,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for _ in range(batches):
            prompts = torch.randint(3, config.vocab_size, (2, 24))
            mask = torch.ones_like(prompts)
            mask[1, 16:] = 0
            next_tokens = model(input_ids=prompts, attention_mask=mask, use_cache=False).logits[:, -1].argmax(-1)
    print(next_tokens.tolist())


if __name__ == "__main__":
    main()
