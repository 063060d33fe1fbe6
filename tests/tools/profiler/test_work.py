"""Bytes and FLOP of an operation, from the shapes it was called with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tools.profiler import trace, work
from tools.profiler.trace import Op

F32, BF16, INT = "float", "c10::BFloat16", "long int"


def op(name: str, *operands: tuple[tuple[int, ...], str], values: str = "") -> Op:
    given = tuple(values.split("; ")) if values else ()
    return Op(name, tuple(shape for shape, _ in operands), tuple(dtype for _, dtype in operands), given)


PATCHES = (((32, 3, 224, 224), F32), ((768, 3, 16, 16), F32), ((768,), F32))
HEADS = (((1, 8, 32, 64), BF16), ((1, 2, 48, 64), BF16), ((1, 2, 48, 64), BF16))


# a name, its operands; bytes, FLOP
KNOWN = [
    (op("aten::mm", ((128, 64), BF16), ((64, 32), BF16)), 2 * (128 * 64 + 64 * 32 + 128 * 32), 2 * 128 * 64 * 32),
    (
        op("aten::addmm", ((32,), F32), ((8, 64), F32), ((64, 32), F32)),
        4 * (32 + 8 * 64 + 64 * 32 + 8 * 32),
        2 * 8 * 64 * 32,
    ),
    (
        op("aten::bmm", ((4, 8, 16), BF16), ((4, 16, 32), BF16)),
        2 * 4 * (8 * 16 + 16 * 32 + 8 * 32),
        2 * 4 * 8 * 16 * 32,
    ),
    (op("aten::linear", ((2, 3, 64), F32), ((32, 64), F32)), 4 * (6 * 64 + 64 * 32 + 6 * 32), 2 * 6 * 64 * 32),
    # key and value heads that are shared are read once
    (
        op("aten::scaled_dot_product_attention", *HEADS, values="; ; ; ; 0.; False; ; True"),
        2 * (8 * 32 * 128 + 2 * 48 * 128),
        2 * 8 * 32 * 48 * 128,
    ),
    # the first row sees one column, the last as many as there are rows
    (
        op("aten::_scaled_dot_product_flash_attention", *HEADS, values="; ; ; 0.; True; False; "),
        2 * (8 * 32 * 128 + 2 * 32 * 128),
        2 * 8 * sum(range(1, 33)) * 128,
    ),
    (
        op("aten::convolution", *PATCHES, values="; ; ; [16, 16]; [0, 0]; [1, 1]; False; [0, 0]; 1"),
        4 * (32 * 3 * 224**2 + 768 * 3 * 16**2 + 32 * 768 * 14**2),
        2 * 32 * 14**2 * 768 * 3 * 16**2,
    ),
    # five wide with its gaps, so that padding by two keeps 30 columns; of 20 rows every other is left
    (
        op(
            "aten::cudnn_convolution",
            ((2, 8, 20, 30), BF16),
            ((6, 4, 3, 3), BF16),
            values="; ; [2]; [2, 1]; [2, 2]; 2; False; False; True",
        ),
        2 * (2 * 8 * 20 * 30 + 6 * 4 * 9 + 2 * 6 * 10 * 30),
        2 * 2 * 6 * 10 * 30 * 4 * 9,
    ),
    (op("aten::add", ((4, 1, 8), F32), ((3, 8), F32)), 4 * (32 + 24 + 96), 96),
    (op("aten::mul_", ((16,), F32), ((), F32)), 4 * (16 + 1 + 16), 16),
    # what is written to is among the operands, and is not read
    (op("aten::copy_", ((8, 8), BF16), ((8, 8), F32)), 64 * 4 + 64 * 2, 0),
    (op("aten::_softmax", ((8, 256), F32)), 2 * 4 * 8 * 256, 5 * 8 * 256),
    (op("aten::sum", ((8, 256), F32)), 4 * 8 * 256, 8 * 256),
    (
        op("aten::native_layer_norm", ((8, 64), BF16), ((64,), BF16), ((64,), BF16)),
        2 * (2 * 8 * 64 + 2 * 64),
        7 * 8 * 64,
    ),
    # what chooses is of one byte, and what is chosen of four
    (op("aten::where", ((8, 64), "bool"), ((8, 64), F32), ((), F32)), 8 * 64 * (1 + 4 + 4) + 4, 0),
    (op("aten::eq", ((8, 64), F32), ((8, 64), F32)), 8 * 64 * (4 + 4 + 1), 0),
    # half precision, though a number of single precision takes part; single, where a whole tensor does
    (op("aten::mul", ((8, 64), BF16), ((), F32)), 2 * 2 * 8 * 64 + 4, 8 * 64),
    (op("aten::add", ((8, 64), BF16), ((64,), F32)), 8 * 64 * (2 + 4) + 4 * 64, 8 * 64),
    (op("aten::topk", ((4, 256), F32)), 4 * 4 * 256, 0),
    (op("aten::view", ((8, 256), F32)), 0, 0),
]


@pytest.mark.parametrize(("called", "bytes_", "flops"), KNOWN, ids=lambda part: getattr(part, "name", ""))
def test_shapes_tell_what_must_be_moved_and_done(called: Op, bytes_: float, flops: float | None) -> None:
    found = work.of(called)
    assert (found.bytes, found.flops) == (bytes_, flops)
    assert found.dtype in ("float32", "bfloat16")


def test_a_convolution_of_cudnn_tells_whether_it_may_use_tf32() -> None:
    operands = ((2, 8, 20, 30), F32), ((6, 8, 3, 3), F32)
    for allowed, dtype in (("True", "tf32"), ("False", "float32")):
        values = f"; ; [0]; [1]; [1]; 1; False; False; {allowed}"
        assert work.of(op("aten::cudnn_convolution", *operands, values=values)).dtype == dtype


@pytest.mark.parametrize(
    "called",
    [
        None,
        op("aten::mm", ((128, 64), BF16), ((63, 32), BF16)),  # they do not go together
        op("aten::mm", ((128, 64), "of another world"), ((64, 32), "of another world")),
        op("mine::special", ((8, 8), F32)),
        op("aten::linear", ((), F32), ((32, 64), F32)),
        op("aten::_scaled_dot_product_flash_attention", *HEADS),  # nor whether it is causal
        op("aten::convolution", *PATCHES),
        op("aten::convolution", *PATCHES, values="; ; ; [0, 0]; [0, 0]; [1, 1]; False; [0, 0]; 1"),
        op("aten::convolution", *PATCHES, values="; ; ; [16, 16]; [0, 0]; [1, 1]; True; [0, 0]; 1"),
        op("aten::miopen_convolution", *PATCHES, values="; ; ; [0]; [1, 1, 1]; [1]; 1; False; False"),
    ],
)
def test_where_they_do_not_nothing_is_guessed(called: Op | None) -> None:
    found = work.of(called)
    assert (found.bytes, found.flops) == (None, None)


def test_torch_itself_tells_strides_and_what_is_causal(tmp_path: Path) -> None:
    heads = torch.ones(1, 2, 16, 8)
    # which backends are allowed is a setting of the process, which another test may have changed
    flash = sdpa_kernel(SDPBackend.FLASH_ATTENTION)
    with torch.profiler.profile(record_shapes=True) as seen, torch.no_grad(), flash:
        torch.conv2d(torch.ones(1, 3, 32, 32), torch.ones(8, 3, 4, 4), stride=4)
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    ops = [launch.op for launch in trace.read(tmp_path / "trace.json").launches if launch.op]
    convolved = {work.of(each).flops for each in ops if each.name.endswith("convolution")}
    attended = {work.of(each).flops for each in ops if each.name.startswith("aten::_scaled_dot_product")}
    assert convolved - {None} == {2 * 8 * 8 * 8 * 3 * 4 * 4}
    assert attended - {None} == {2 * 2 * sum(range(1, 17)) * 16}
