"""transformers' Llama with random weights: how long a forward pass over a prompt takes."""

import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
PROMPTS = [(1, 32), (1, 1024), (8, 512)] if ON_GPU else [(1, 32)]

SIZES = (
    dict(vocab_size=32000, hidden_size=2048, intermediate_size=7168, num_attention_heads=32, num_key_value_heads=8)
    if ON_GPU
    else dict(vocab_size=256, hidden_size=64, intermediate_size=224, num_attention_heads=8, num_key_value_heads=2)
)


def main(calls=5):
    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=8 if ON_GPU else 4, use_cache=False, **SIZES)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).to(DTYPE).eval()
    with torch.no_grad():
        for batch, tokens in PROMPTS:
            for _ in range(calls):
                prompt = torch.randint(config.vocab_size, (batch, tokens), device=DEVICE)
                start = time.perf_counter()
                logits = model(input_ids=prompt).logits
                if ON_GPU:
                    torch.cuda.synchronize()
            print(f"{batch} x {tokens}: {(time.perf_counter() - start) * 1e3:.2f} ms, logits {tuple(logits.shape)}")


if __name__ == "__main__":
    main()
