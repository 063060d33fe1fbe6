"""Bytes and FLOP of an operation, from the shapes it was called with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tools.profiler import trace, work
from tools.profiler.trace import Op

TYPES = {"f": "float", "b": "c10::BFloat16", "?": "bool", "!": "of another world"}


def op(name: str, operands: str, values: str = "") -> Op:
    """`operands` are a letter for the type and a shape each: `b8x64` is of bfloat16, `f` a number of float32."""
    given = tuple(values.split("; ")) if values else ()
    shapes = tuple(tuple(map(int, filter(None, each[1:].split("x")))) for each in operands.split())
    return Op(f"aten::{name}", shapes, tuple(TYPES[each[0]] for each in operands.split()), given)


PATCHES, HEADS = "f32x3x224x224 f768x3x16x16 f768", "b1x8x32x64 b1x2x48x64 b1x2x48x64"
SHARED = op("scaled_dot_product_attention", HEADS, "; ; ; ; 0.; False; ; True")
CAUSAL = op("_scaled_dot_product_flash_attention", HEADS, "; ; ; 0.; True; False; ")
PATCHED = op("convolution", PATCHES, "; ; ; [16, 16]; [0, 0]; [1, 1]; False; [0, 0]; 1")
GROUPED = op("cudnn_convolution", "b2x8x20x30 b6x4x3x3", "; ; [2]; [2, 1]; [2, 2]; 2; False; False; True")
# bytes, FLOP
KNOWN = [
    (op("mm", "b128x64 b64x32"), 2 * (128 * 64 + 64 * 32 + 128 * 32), 2 * 128 * 64 * 32),
    (op("addmm", "f32 f8x64 f64x32"), 4 * (32 + 8 * 64 + 64 * 32 + 8 * 32), 2 * 8 * 64 * 32),
    (op("bmm", "b4x8x16 b4x16x32"), 2 * 4 * (8 * 16 + 16 * 32 + 8 * 32), 2 * 4 * 8 * 16 * 32),
    (op("linear", "f2x3x64 f32x64"), 4 * (6 * 64 + 64 * 32 + 6 * 32), 2 * 6 * 64 * 32),
    # key and value heads that are shared are read once
    (SHARED, 2 * (8 * 32 * 128 + 2 * 48 * 128), 2 * 8 * 32 * 48 * 128),
    # the first row sees one column, the last as many as there are rows
    (CAUSAL, 2 * (8 * 32 * 128 + 2 * 32 * 128), 2 * 8 * sum(range(1, 33)) * 128),
    (PATCHED, 4 * (32 * 3 * 224**2 + 768 * 3 * 16**2 + 32 * 768 * 14**2), 2 * 32 * 14**2 * 768 * 3 * 16**2),
    # five wide with its gaps, so that padding by two keeps 30 columns; of 20 rows every other is left
    (GROUPED, 2 * (2 * 8 * 20 * 30 + 6 * 4 * 9 + 2 * 6 * 10 * 30), 2 * 2 * 6 * 10 * 30 * 4 * 9),
    (op("add", "f4x1x8 f3x8"), 4 * (32 + 24 + 96), 96),
    (op("mul_", "f16 f"), 4 * (16 + 1 + 16), 16),
    # what is written to is among the operands, and is not read
    (op("copy_", "b8x8 f8x8"), 64 * 4 + 64 * 2, 0),
    (op("_softmax", "f8x256"), 2 * 4 * 8 * 256, 5 * 8 * 256),
    (op("sum", "f8x256"), 4 * 8 * 256, 8 * 256),
    (op("native_layer_norm", "b8x64 b64 b64"), 2 * (2 * 8 * 64 + 2 * 64), 7 * 8 * 64),
    # what chooses is of one byte, and what is chosen of four
    (op("where", "?8x64 f8x64 f"), 8 * 64 * (1 + 4 + 4) + 4, 0),
    (op("eq", "f8x64 f8x64"), 8 * 64 * (4 + 4 + 1), 0),
    # half precision, though a number of single precision takes part; single, where a whole tensor does
    (op("mul", "b8x64 f"), 2 * 2 * 8 * 64 + 4, 8 * 64),
    (op("add", "b8x64 f64"), 8 * 64 * (2 + 4) + 4 * 64, 8 * 64),
    (op("topk", "f4x256"), 4 * 4 * 256, 0),
    (op("view", "f8x256"), 0, 0),
]


@pytest.mark.parametrize(("called", "bytes_", "flops"), KNOWN, ids=lambda part: getattr(part, "name", ""))
def test_shapes_tell_what_must_be_moved_and_done(called: Op, bytes_: float, flops: float | None) -> None:
    found = work.of(called)
    assert (found.bytes, found.flops) == (bytes_, flops)
    assert found.dtype in ("float32", "bfloat16")


def test_a_convolution_of_cudnn_tells_whether_it_may_use_tf32() -> None:
    for allowed, dtype in (("True", "tf32"), ("False", "float32")):
        values = f"; ; [0]; [1]; [1]; 1; False; False; {allowed}"
        assert work.of(op("cudnn_convolution", "f2x8x20x30 f6x8x3x3", values)).dtype == dtype


@pytest.mark.parametrize(
    "called",
    [
        None,
        op("mm", "b128x64 b63x32"),  # they do not go together
        op("mm", "!128x64 !64x32"),
        op("special", "f8x8"),
        op("linear", "f f32x64"),
        op("_scaled_dot_product_flash_attention", HEADS),  # nor whether it is causal
        op("convolution", PATCHES),
        op("convolution", PATCHES, "; ; ; [0, 0]; [0, 0]; [1, 1]; False; [0, 0]; 1"),
        op("convolution", PATCHES, "; ; ; [16, 16]; [0, 0]; [1, 1]; True; [0, 0]; 1"),
        op("miopen_convolution", PATCHES, "; ; ; [0]; [1, 1, 1]; [1]; 1; False; False"),
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
