"""How the policy is used: actions are denoised step by step, for an observation that stays the same meanwhile."""

import time

import torch
from model import Policy

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
SIZE, HEADS, LAYERS, TOKENS, BATCH = (1024, 16, 24, 1024, 4) if ON_GPU else (64, 4, 4, 96, 1)
FEATURES, ACTIONS, HORIZON, STEPS = 32, 8, 16, 20


def main():
    torch.manual_seed(0)
    policy = Policy(FEATURES, ACTIONS, SIZE, HEADS, LAYERS, TOKENS, STEPS, HORIZON).to(DEVICE, DTYPE).eval()
    observation = torch.randn(BATCH, TOKENS, FEATURES).to(DEVICE, DTYPE)
    actions = torch.randn(BATCH, HORIZON, ACTIONS).to(DEVICE, DTYPE)
    start = time.perf_counter()
    with torch.no_grad():
        for step in reversed(range(STEPS)):
            noise = policy(actions, torch.full((BATCH,), step, device=DEVICE), observation)
            actions = actions - noise / STEPS
    if ON_GPU:
        torch.cuda.synchronize()
    print(f"{(time.perf_counter() - start) / STEPS * 1e3:.2f} ms a step, {tuple(actions.shape)}")


if __name__ == "__main__":
    main()
