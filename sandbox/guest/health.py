"""Whether the device still computes right: a product that is known, there and back. Ends with 0, or says what is wrong.

A script for the target's interpreter, which loads nothing of the target.
"""

import sys

import torch

SIZE = 512


def main(device):
    # whole numbers below 2**24, so that every sum is exact in whatever order it is added up
    numbers = torch.arange(SIZE * SIZE, dtype=torch.float32).reshape(SIZE, SIZE) % 7
    there = numbers.to(device)
    found = (there @ there).cpu()
    if device != "cpu":
        torch.cuda.synchronize()
    if not torch.equal(found, numbers @ numbers):
        sys.exit("it computes a product wrong")


if __name__ == "__main__":
    main(sys.argv[1])
