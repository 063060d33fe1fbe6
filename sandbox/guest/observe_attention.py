"""Attention by hand, found from its softmax: backwards to Q K^T through scale and mask, forwards to the product with V.

Fused calls are reported too, as such. What is not understood is left out, never guessed; so is attention whose scale or
dropout is no plain number.
"""

from __future__ import annotations

import math

from .observe_rows import Rows

_VIEWS = frozenset(("transpose", "permute", "mT", "swapaxes", "swapdims", "unsqueeze", "expand"))
_SHAPES = frozenset(("view", "reshape", "flatten", "unflatten"))
_SAME = _SHAPES | {"to", "float", "half", "bfloat16", "type", "type_as", "contiguous", "clone", "detach"}
_PRODUCTS = frozenset(["matmul", "bmm", "einsum", "baddbmm"])
_MASKING = ("add", "masked_fill", "sub")
_STEPS = 12


def found(seen):
    rows = Rows(seen)
    for trace, op in seen.ops("softmax", "scaled_dot_product_attention"):
        fused = op.name != "softmax"
        case = (_fused if fused else _by_hand)(trace, op)
        if case is not None:
            row = rows.add((op.frames[:1], fused), op.frames, case.pop("seconds"), fused=fused, cases=[])
            if case not in row["cases"]:
                row["cases"].append(case)
    return [{**row, "cases": row["cases"][:16]} for row in rows.table()]


def _by_hand(trace, softmax):
    seconds = [softmax.seconds]
    scores = _back_to_scores(trace, softmax.operands()[0], seconds)
    values = _forward_to_values(trace, softmax.outs[0], seconds)
    if scores is None or values is None:
        return None
    product, scale, masks = scores
    weighted, dropout = values
    if not (_is_number(scale) and _is_number(dropout)):
        return None
    queries, keys = (trace.values[tag] for tag in product.operands()[-2:])
    return {
        "fused": False,
        "seconds": sum(seconds) + product.seconds + weighted.seconds,
        "scores_shape": list(trace.values[softmax.operands()[0]].shape),
        "heads": list(queries.shape[1:2]),
        "key_heads": list(keys.shape[1:2]),
        "q_shape": list(queries.shape),
        "scale": scale,
        "masks": masks,
        "dropout": dropout,
        "dtype": str(queries.dtype).removeprefix("torch."),
        "lines": [_line(op) for op in (product, softmax, weighted)],
    }


def _back_to_scores(trace, tag, seconds):
    """(the product Q K^T, scale, masks) behind the operand of a softmax."""
    scale, masks = 1.0, []
    for _ in range(_STEPS):
        op = trace.producer(tag)
        if op is None:
            return None
        if op.name in _PRODUCTS:
            return (op, scale, masks) if len(op.operands()) >= 2 else None
        seconds.append(op.seconds)
        operands = op.operands()
        if op.name in _SAME and operands:
            tag = operands[0]
        elif op.name in ("mul", "div") and len(operands) == 1:
            factor = next((a for a in op.args if isinstance(a, (int, float))), None)
            if not factor or (op.name == "div" and op.args[0] == factor):
                return None
            scale = scale * factor if op.name == "mul" else scale / factor
            tag = operands[0]
        elif op.name in (*_MASKING, "where") and operands:
            if scale != 1.0:
                return None  # scaled after masking: not what a fused call does
            tag, mask = _split_mask(trace, op)
            if tag is None:
                return None
            masks.insert(0, mask)
        else:
            return None
    return None


def _split_mask(trace, op):
    """(tag of the scores, description of the mask) of an operation that masks."""
    operands = op.operands()
    from_product = [tag for tag in operands if _comes_from_product(trace, tag)]
    if len(from_product) != 1:
        return None, None
    other = next((tag for tag in operands if tag != from_product[0]), None)
    mask = {"operation": op.name, "line": _line(op), "known": op.mask is not None}
    if other is not None:
        value = trace.values[other]
        mask |= {"depends_on_data": trace.flags(other) != 0, "shape": list(value.shape)}
    return from_product[0], {**mask, **(op.mask or {"causal": False, "empty_rows": True})}


def _comes_from_product(trace, tag):
    for _ in range(_STEPS):
        op = trace.producer(tag)
        if op is None or op.name in _PRODUCTS:
            return op is not None
        operands = op.operands()
        if not (op.name in (*_SAME, "mul", "div") and len(operands) == 1) and op.name not in _MASKING:
            return False
        tag = operands[0]
    return False


def _forward_to_values(trace, tag, seconds):
    """(the product with V, dropout probability) after a softmax."""
    dropout = 0.0
    for _ in range(_STEPS):
        users = trace.consumers(tag)
        if len(users) != 1:
            return None
        op = users[0]
        if op.name in _PRODUCTS:
            return (op, dropout) if op.operands()[0] == tag else None
        seconds.append(op.seconds)
        if op.name in ("dropout", "feature_dropout"):
            active = op.kwargs.get("training", op.args[2] if len(op.args) > 2 else True)
            dropout = op.kwargs.get("p", op.args[1] if len(op.args) > 1 else 0.5) if active else 0.0
        elif op.name not in _SAME:
            return None
        tag = op.outs[0]
    return None


def _fused(trace, op):
    scale = op.kwargs.get("scale")
    if scale is not None and not _is_number(scale):
        return None
    queries, keys = (trace.values[tag] for tag in op.operands()[:2])
    return {
        "fused": True,
        "seconds": op.seconds,
        "q_shape": list(queries.shape),
        "k_shape": list(keys.shape),
        "scale": scale,
        "is_causal": bool(op.kwargs.get("is_causal", op.args[5] if len(op.args) > 5 else False)),
        "enable_gqa": bool(op.kwargs.get("enable_gqa", False)),
        "lines": [_line(op)],
    }


def _is_number(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def _line(op):
    return op.frames[0][1] if op.frames else 0


def reaches_attention(trace, tag):
    """Whether a tensor goes into a matrix product (or a fused attention) through views alone."""
    wanted, seen = [tag], set()
    while wanted:
        tag = wanted.pop()
        for op in trace.consumers(tag):
            if op.name in _PRODUCTS or op.name == "scaled_dot_product_attention":
                return True
            if op.name in _VIEWS | _SHAPES | {"contiguous"} and op.outs and op.outs[0] not in seen:
                seen.add(op.outs[0])
                wanted.append(op.outs[0])
    return False
