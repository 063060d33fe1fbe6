"""Bytes and FLOP of an operation, from the shapes it was called with."""

from __future__ import annotations

import pytest

from tools.profiler import work
from tools.profiler.trace import Op

F32, BF16, INT = "float", "c10::BFloat16", "long int"


def op(name: str, *operands: tuple[tuple[int, ...], str]) -> Op:
    return Op(name, tuple(shape for shape, _ in operands), tuple(dtype for _, dtype in operands))


# a name, its operands; bytes, FLOP
KNOWN = [
    (op("aten::mm", ((128, 64), BF16), ((64, 32), BF16)), 2 * (128 * 64 + 64 * 32 + 128 * 32), 2 * 128 * 64 * 32),
    (op("aten::addmm", ((32,), F32), ((8, 64), F32), ((64, 32), F32)), 4 * (32 + 8 * 64 + 64 * 32 + 8 * 32),
     2 * 8 * 64 * 32),
    (op("aten::bmm", ((4, 8, 16), BF16), ((4, 16, 32), BF16)), 2 * 4 * (8 * 16 + 16 * 32 + 8 * 32),
     2 * 4 * 8 * 16 * 32),
    (op("aten::linear", ((2, 3, 64), F32), ((32, 64), F32)), 4 * (6 * 64 + 64 * 32 + 6 * 32), 2 * 6 * 64 * 32),
    # key and value heads that are shared are read once
    (op("aten::scaled_dot_product_attention", ((1, 8, 32, 64), BF16), ((1, 2, 48, 64), BF16), ((1, 2, 48, 64), BF16)),
     2 * (8 * 32 * 128 + 2 * 48 * 128), 2 * 8 * 32 * 48 * 128),
    (op("aten::add", ((4, 1, 8), F32), ((3, 8), F32)), 4 * (32 + 24 + 96), 96),
    (op("aten::mul_", ((16,), F32), ((), F32)), 4 * (16 + 1 + 16), 16),
    # what is written to is among the operands, and is not read
    (op("aten::copy_", ((8, 8), BF16), ((8, 8), F32)), 64 * 4 + 64 * 2, 0),
    (op("aten::_softmax", ((8, 256), F32)), 2 * 4 * 8 * 256, 5 * 8 * 256),
    (op("aten::sum", ((8, 256), F32)), 4 * 8 * 256, 8 * 256),
    (op("aten::native_layer_norm", ((8, 64), BF16), ((64,), BF16), ((64,), BF16)), 2 * (2 * 8 * 64 + 2 * 64),
     7 * 8 * 64),
    (op("aten::silu", ((8, 64), BF16)), 2 * 2 * 8 * 64, 4 * 8 * 64),
    # what chooses is of one byte, and what is chosen of four
    (op("aten::where", ((8, 64), "bool"), ((8, 64), F32), ((), F32)), 8 * 64 * (1 + 4 + 4) + 4, 0),
    (op("aten::eq", ((8, 64), F32), ((8, 64), F32)), 8 * 64 * (4 + 4 + 1), 0),
    # half precision, though a number of single precision takes part; single, where a whole tensor does
    (op("aten::mul", ((8, 64), BF16), ((), F32)), 2 * 2 * 8 * 64 + 4, 8 * 64),
    (op("aten::add", ((8, 64), BF16), ((64,), F32)), 8 * 64 * (2 + 4) + 4 * 64, 8 * 64),
    (op("aten::topk", ((4, 256), F32)), 4 * 4 * 256, 0),
    (op("aten::view", ((8, 256), F32)), 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("called", "bytes_", "flops"), KNOWN, ids=lambda part: getattr(part, "name", ""))
def test_shapes_tell_what_must_be_moved_and_done(called: Op, bytes_: float, flops: float | None) -> None:
    found = work.of(called)
    assert (found.bytes, found.flops) == (bytes_, flops)
    assert found.dtype in ("float32", "bfloat16")


@pytest.mark.parametrize(
    "called",
    [
        None,
        op("aten::mm", ((128, 64), BF16), ((63, 32), BF16)),  # they do not go together
        op("aten::mm", ((128, 64), "of another world"), ((64, 32), "of another world")),
        op("aten::mm"),
        op("mine::special", ((8, 8), F32)),
        op("aten::linear", ((), F32), ((32, 64), F32)),
    ],
)
def test_where_they_do_not_nothing_is_guessed(called: Op | None) -> None:
    found = work.of(called)
    assert (found.bytes, found.flops) == (None, None)
