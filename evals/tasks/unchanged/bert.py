"""transformers' BERT with random weights: padded sentences."""

import torch
from transformers import BertConfig, BertModel


def main(batches=4):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
    )
    model = BertModel(config).eval()
    with torch.no_grad():
        for _ in range(batches):
            sentences = torch.randint(3, config.vocab_size, (2, 24))
            mask = torch.ones_like(sentences)
            mask[1, 16:] = 0
            states = model(input_ids=sentences, attention_mask=mask).last_hidden_state
    print(tuple(states.shape))


if __name__ == "__main__":
    main()
