import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def append_shared_kernel(
        ids_ptr, weights_ptr, new_ids_ptr, new_weights_ptr, shared, K: tl.constexpr, BLOCK: tl.constexpr
    ):
        row = tl.program_id(0)
        column = tl.arange(0, BLOCK)
        routed = column < K
        ids = tl.load(ids_ptr + row * K + column, mask=routed, other=0)
        weights = tl.load(weights_ptr + row * K + column, mask=routed, other=0.0)
        ids = tl.where(routed, ids, shared)
        weights = tl.where(routed, weights, 1.0)
        kept = column < K + 1
        tl.store(new_ids_ptr + row * (K + 1) + column, ids, mask=kept)
        tl.store(new_weights_ptr + row * (K + 1) + column, weights, mask=kept)


class Router(torch.nn.Module):
    """Which experts each token goes to, in the order in which the experts take them."""

    def __init__(self, hidden, experts=256, routed=8):
        super().__init__()
        self.experts, self.routed = experts, routed
        self.gate = torch.nn.Linear(hidden, experts, bias=False)

    def forward(self, tokens):
        scores = torch.softmax(self.gate(tokens).float(), dim=-1)
        weights, ids = torch.topk(scores, self.routed, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        ids, weights = self.append_shared(ids, weights)
        by_expert, order = torch.sort(ids.flatten(), stable=True)
        counts = torch.zeros(self.experts + 1, dtype=torch.long, device=ids.device)
        counts.scatter_add_(0, by_expert, torch.ones_like(by_expert))
        return weights.flatten()[order], order // (self.routed + 1), counts

    def append_shared(self, ids, weights):
        rows = ids.shape[0]
        if triton is None or not ids.is_cuda:
            shared = torch.full((rows, 1), self.experts, dtype=ids.dtype, device=ids.device)
            return torch.cat([ids, shared], dim=1), torch.cat([weights, torch.ones_like(weights[:, :1])], dim=1)
        new_ids = torch.empty(rows, self.routed + 1, dtype=ids.dtype, device=ids.device)
        new_weights = torch.empty(rows, self.routed + 1, dtype=weights.dtype, device=weights.device)
        append_shared_kernel[(rows,)](ids, weights, new_ids, new_weights, self.experts, K=self.routed, BLOCK=16)
        return new_ids, new_weights
