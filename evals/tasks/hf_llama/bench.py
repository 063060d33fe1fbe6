"""transformers' Llama with random weights: one forward pass over a prompt."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"

SIZES = (
    dict(vocab_size=32000, hidden_size=2048, intermediate_size=7168, num_attention_heads=32, num_key_value_heads=8)
    if ON_GPU
    else dict(vocab_size=256, hidden_size=64, intermediate_size=224, num_attention_heads=8, num_key_value_heads=2)
)
CONFIG = LlamaConfig(num_hidden_layers=8 if ON_GPU else 4, use_cache=False, **SIZES)


def build():
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = LlamaForCausalLM(CONFIG)
    return model.to(torch.bfloat16 if ON_GPU else torch.float32).eval()


def shapes():
    if ON_GPU:
        return [{"batch": 1, "tokens": 32}, {"batch": 1, "tokens": 1024}, {"batch": 8, "tokens": 512}]
    return [{"batch": 1, "tokens": 32}]


def inputs(seed, batch=1, tokens=32):
    generator = torch.Generator().manual_seed(seed)
    return {"input_ids": torch.randint(CONFIG.vocab_size, (batch, tokens), generator=generator).to(DEVICE)}


def outputs(result):
    """Only the logits count."""
    return result.logits


def work(batch=1, tokens=32):
    return {"tokens": batch * tokens}
