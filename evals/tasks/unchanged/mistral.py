"""transformers' Mistral with random weights: prompts of different lengths in one batch."""

import torch
from transformers import MistralConfig, MistralForCausalLM


def main(batches=4):
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
    )
    model = MistralForCausalLM(config).eval()
    with torch.no_grad():
        for _ in range(batches):
            prompts = torch.randint(3, config.vocab_size, (2, 24))
            mask = torch.ones_like(prompts)
            mask[1, 16:] = 0
            next_tokens = model(input_ids=prompts, attention_mask=mask, use_cache=False).logits[:, -1].argmax(-1)
    print(next_tokens.tolist())


if __name__ == "__main__":
    main()
