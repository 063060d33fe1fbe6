"""Look into the masks of attention while they exist: is this one exactly causal, for this call?

Does not summarise anything that is not made of "allowed" (0, True) and "blocked" (below BLOCKED, False) alone, and
what cannot be looked at: sparse, nested and meta tensors, and those inside of a transform of functorch, as vmap.
"""

from __future__ import annotations

import torch

BLOCKED = -1e4  # additive values at or below it end as zero after a softmax in any dtype
MAX_ELEMENTS = 1 << 27


def summarize_mask(name, args, kwargs):
    """What an operation that masks does: {"operand", "kind", "causal", "lower_right", "empty_rows", "shape", "dtype"}.

    "operand" is the position of the mask among the arguments. None for any other operation.
    """
    if name not in ("add", "masked_fill", "where"):
        return None
    try:
        return _summary(name, args, kwargs)
    except (RuntimeError, NotImplementedError):  # a tensor of another kind that has no values here
        return None


def _summary(name, args, kwargs):
    if name == "add":
        if kwargs.get("alpha", 1) != 1:
            return None
        for position, operand in enumerate(args[:2]):
            if _is_plain(operand) and operand.is_floating_point() and operand.dim() >= 2:
                found = _additive(operand)
                if found:
                    return {**found, "operand": position, "kind": "additive"}
        return None
    if name == "masked_fill":
        return _filled(args, kwargs, 1, "mask", 2, "value", blocked_where=True)
    return _filled(args, kwargs, 0, "condition", 2, "other", blocked_where=False)


def _is_plain(value):
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_nested or value.is_meta:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(value)


def _additive(mask):
    sample = mask.flatten()[:64] if mask.is_contiguous() else mask[(0,) * (mask.dim() - 1)][:64]
    if mask.numel() > MAX_ELEMENTS or not bool(((sample == 0) | (sample <= BLOCKED)).all()):
        return None
    allowed = mask == 0
    if not bool((allowed | (mask <= BLOCKED)).all()):
        return None
    return _describe(allowed, mask)


def _filled(args, kwargs, where, where_name, what, what_name, blocked_where):
    condition = args[where] if len(args) > where else kwargs.get(where_name)
    value = args[what] if len(args) > what else kwargs.get(what_name)
    if _is_plain(value) and value.numel() == 1:
        value = value.item()
    if not _is_plain(condition) or condition.dtype != torch.bool or condition.dim() < 2:
        return None
    if not isinstance(value, (int, float)) or value > BLOCKED or condition.numel() > MAX_ELEMENTS:
        return None
    found = _describe(~condition if blocked_where else condition, condition)
    return {**found, "operand": where, "kind": "fill", "infinite": value == float("-inf")}


def _describe(allowed, mask):
    rows, columns = allowed.shape[-2:]
    triangle = torch.ones(rows, columns, dtype=torch.bool, device=allowed.device)
    return {
        "causal": bool((allowed == triangle.tril()).all()),
        "lower_right": bool((allowed == triangle.tril(columns - rows)).all()),
        "empty_rows": not bool(allowed.any(-1).all()),
        "shape": list(mask.shape),
        "dtype": str(mask.dtype).removeprefix("torch."),
    }
