"""transformers' T5 with random weights: what follows a beginning, for a text."""

import torch
from transformers import T5Config, T5ForConditionalGeneration


def main(batches=4):
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=256, d_model=64, d_kv=16, d_ff=192, num_layers=3, num_heads=4, decoder_start_token_id=0
    )
    model = T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for _ in range(batches):
            text, beginning = torch.randint(3, 256, (2, 24)), torch.randint(3, 256, (2, 8))
            mask = torch.ones_like(text)
            mask[1, 16:] = 0
            logits = model(input_ids=text, attention_mask=mask, decoder_input_ids=beginning, use_cache=False).logits
    print(logits[:, -1].argmax(-1).tolist())


if __name__ == "__main__":
    main()
