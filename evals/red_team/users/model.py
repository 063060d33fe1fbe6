"""Parts of models in which what the entry shows is a special case of what users bring, each a result of its own."""

import numpy as np
import torch
from torch import nn

WIDTH, LENGTH, RANK, VOCABULARY = 32, 16, 4, 500


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.light = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.a = nn.Parameter(torch.randn(RANK, WIDTH) / WIDTH**0.5)
        self.b = nn.Parameter(torch.zeros(WIDTH, RANK))
        self.gamma = nn.Parameter(torch.full((WIDTH,), 1e-6))
        self.register_buffer("whole", torch.randint(-127, 128, (WIDTH, WIDTH), dtype=torch.int8))
        self.scale = nn.Parameter(torch.rand(WIDTH) * 1e-2)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(48, WIDTH))

    def forward(self, x, ids, mask, temperature=1.0):
        return {
            "adapted": self.adapted(x),
            "residual": self.residual(x),
            "centred": self.centred(x),
            "quantised": self.quantised(x),
            "product": self.product(x),
            "attended": self.attended(x, mask, temperature),
            "pooled": self.pooled(x),
            "shifted": self.shifted(x),
            "embedded": self.embedded(ids),
            "found": self.found(x),
            "copies": self.copies(x),
            "placed": self.placed(x),
            "columns": self.columns(x),
            "ratio": self.ratio(x),
            "weights": self.weights(x),
            "turned": self.turned(x),
            "last": self.last(x),
            "bounded": self.bounded(x),
            "worked": self.worked(x),
        }

    def adapted(self, x):
        return self.base(x) + (x @ self.a.t()) @ self.b.t()

    def residual(self, x):
        return x + self.gamma * torch.tanh(self.light(x))

    def centred(self, x):
        return (x - self.mean) * 2

    def quantised(self, x):
        return (x @ self.whole.to(x.dtype).t()) * self.scale

    def product(self, x):
        return self.second(self.first(x))

    def attended(self, x, mask, temperature):
        scores = x @ x.transpose(1, 2) / (WIDTH**0.5 * temperature)
        scores = scores.masked_fill(mask[:, None, :] == 0, -1e9)
        scores = scores - scores.amax(-1, keepdim=True)
        weights = scores.exp()
        return (weights / weights.sum(-1, keepdim=True)) @ x

    def pooled(self, x):
        weights = x.sum(-1).softmax(-1)
        return (weights.unsqueeze(1) @ x).squeeze(1)

    def shifted(self, x):
        return x * self.scale + self.gamma

    def embedded(self, ids):
        return torch.tanh(self.light(self.embed(ids)))

    def found(self, x):
        scores = self.light(x).amax(-1).detach()
        best = scores.topk(3).indices
        return {"boxes": scores.gather(1, best).numpy().astype(np.float32), "won": set(best[:, 0].tolist())}

    def copies(self, x):
        h = x * 2
        return h, h.clone()

    def placed(self, x):
        if x.shape[1] > len(self.positions):
            raise ValueError("it has no positions for so many")
        return self.positions[: x.shape[1]].clone()

    def columns(self, x):
        boxes = 3840 * self.base(x)[..., :4].sigmoid()
        scores = 0.004 * self.light(x)[..., :2].sigmoid()
        return torch.cat([boxes, scores], -1)

    def ratio(self, x):
        below = (x[..., :1].abs() + 1000.01) - 1000.0
        return (self.base(x) + 0.01 * torch.tanh(self.light(x))) / below

    def weights(self, x):
        heavy = torch.exp(24 * torch.tanh(x.mean((1, 2))[:, None] * (x.shape[1] * x.shape[2]) ** 0.5))
        return heavy * (1.5 + torch.tanh(self.light(x).mean((1, 2))[:, None]))

    def turned(self, x):
        return (x * 2).transpose(1, 2).contiguous()

    def last(self, x):
        return self.light(x)[-1, -1].clone()

    def bounded(self, x):
        return x / (1 + x.abs())

    def worked(self, x):
        h = x @ self.first.weight
        return torch.tanh(h) + h
