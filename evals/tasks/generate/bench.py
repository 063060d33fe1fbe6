"""Greedy decoding with transformers' Llama and its cache, random weights: a prompt, and the tokens that follow."""

import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
PROMPT, NEW = (128, 32) if ON_GPU else (16, 8)

SIZES = (
    dict(vocab_size=32000, hidden_size=2048, intermediate_size=7168, num_attention_heads=32, num_key_value_heads=8)
    if ON_GPU
    else dict(vocab_size=256, hidden_size=64, intermediate_size=224, num_attention_heads=8, num_key_value_heads=2)
)


def main(prompts=3):
    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=8 if ON_GPU else 4, **SIZES)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).to(DTYPE).eval()
    for _ in range(prompts):
        prompt = torch.randint(3, config.vocab_size, (1, PROMPT), device=DEVICE)
        start = time.perf_counter()
        answer = model.generate(prompt, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0)
        print(f"{(time.perf_counter() - start) / NEW * 1e3:.2f} ms a token, {tuple(answer.shape)}")


if __name__ == "__main__":
    main()
