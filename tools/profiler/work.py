"""How many bytes an operation must move at least, and how many FLOP it must do, from what it was called with.

None where that is not known. Bytes: every operand read once and every result written once. A multiply-add is two FLOP.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tools.profiler.trace import Op

Shape = tuple[int, ...]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# as torch.profiler spells them -> (our name, bytes)
DTYPES: dict[str, tuple[str, int]] = {
    "double": ("float64", 8),
    "float": ("float32", 4),
    "c10::Half": ("float16", 2),
    "c10::BFloat16": ("bfloat16", 2),
    "c10::Float8_e4m3fn": ("float8", 1),
    "c10::Float8_e4m3fnuz": ("float8", 1),
    "c10::Float8_e5m2": ("float8", 1),
    "c10::Float8_e5m2fnuz": ("float8", 1),
    "long int": ("int64", 8),
    "int": ("int32", 4),
    "bool": ("bool", 1),
    "unsigned char": ("uint8", 1),
    "signed char": ("int8", 1),
    "short int": ("int16", 2),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
}


@dataclass(frozen=True)
class Work:
    bytes: float | None = None
    flops: float | None = None
    dtype: str = ""

    def times(self, part: float) -> Work:
        """So much of it."""
        moved, done = (None if value is None else part * value for value in (self.bytes, self.flops))
        return Work(moved, done, self.dtype)


def of(op: Op | None) -> Work:
    """What one call of this operation must do."""
    if op is None:
        return Work()
    operands = [(shape, *DTYPES[dtype]) for shape, dtype in zip(op.shapes, op.dtypes, strict=False) if dtype in DTYPES]
    if not operands:
        return Work()
    name = op.name.removeprefix("aten::").removesuffix("_")
    found = _product(name, op)
    if found is not None:
        flops, elements = found
        _, dtype, size = operands[0]
        if name == "cudnn_convolution" and dtype == "float32" and _value(op, _ALLOW_TF32) == "True":
            dtype = "tf32"
        return Work(elements * size, flops, dtype)
    dtype, size = _promoted(operands)
    if name in _VIEWS:
        return Work(0.0, 0.0, dtype)
    if name == "copy":  # what is written to is one of the operands
        return Work(_bytes(operands), 0.0, dtype)
    if name in _FLOP_EACH:
        first = math.prod(operands[0][0])
        written = 0.0 if name in _REDUCING else float(first * size)
        return Work(_bytes(operands) + written, _FLOP_EACH[name] * first, dtype)
    if name in _POINTWISE:
        elements = math.prod(_broadcast([shape for shape, _, _ in operands]))
        written = float(elements * (1 if name in _COMPARING else size))
        return Work(_bytes(operands) + written, _POINTWISE[name] * elements, dtype)
    return Work(None, None, dtype)


Operand = tuple[Shape, str, int]  # shape, data type, bytes of an element


def _bytes(operands: Sequence[Operand]) -> float:
    return float(sum(math.prod(shape) * size for shape, _, size in operands))


def _promoted(operands: Sequence[Operand]) -> tuple[str, int]:
    """The type in which operands are worked with: tensors before numbers, then floating point, then the widest."""
    _, dtype, size = max(operands, key=lambda each: (bool(each[0]), "float" in each[1], each[2]))
    return dtype, size


Product = tuple[float, float]  # FLOP, elements moved
_NUMBERS = re.compile(r"\[(\d{1,9}(?:, \d{1,9}){0,9})\]")


def _product(name: str, op: Op) -> Product | None:
    if name in _CAUSAL:
        return _attention(op.shapes, _value(op, _CAUSAL[name]))
    if name in _WINDOWS:
        return _convolution(op, *_WINDOWS[name])
    return _matmul(name, op.shapes)


def _matmul(name: str, shapes: Sequence[Shape]) -> Product | None:
    added = 0
    if name in ("addmm", "baddbmm") and shapes:
        added, shapes, name = math.prod(shapes[0]), shapes[1:], "bmm" if name == "baddbmm" else "mm"
    match name, shapes:
        case "linear", [(*rows, k), (n, other), *_]:
            batch, also, m = 1, 1, math.prod(rows)
        case "mm", [(m, k), (other, n), *_]:
            batch = also = 1
        case "bmm", [(batch, m, k), (also, other, n), *_]:
            pass
        case _:
            return None
    if (batch, k) != (also, other):
        return None
    return 2.0 * batch * m * n * k, batch * (m * k + k * n + m * n) + added


def _attention(shapes: Sequence[Shape], causal: str) -> Product | None:
    """Where it is causal, a row sees the columns up to its own."""
    match shapes:
        case [(b, heads, rows, width), (_, shared, columns, _), (_, _, _, out), *_] if causal in ("True", "False"):
            pairs = float(rows * columns)
            if causal == "True":
                columns = min(rows, columns)
                pairs = columns * (rows - (columns - 1) / 2)
            flops = 2.0 * b * heads * pairs * (width + out)
            return flops, b * (heads * rows * (width + out) + shared * columns * (width + out))
    return None


def _convolution(op: Op, stride: int, padding: int, dilation: int, transposed: int | None) -> Product | None:
    """Each is the place of that argument; nothing is told of a transposed one."""
    if transposed is not None and _value(op, transposed) != "False":
        return None
    match op.shapes:
        case [(b, _, *space), (out, per_group, *window), *_] if space and len(space) == len(window):
            steps, pads, gaps = (_numbers(_value(op, at), len(space)) for at in (stride, padding, dilation))
            if not all(steps) or not len(steps) == len(pads) == len(gaps) == len(space):
                return None
            sides = zip(space, window, steps, pads, gaps, strict=True)
            places = (
                max(0, (size + 2 * pad - gap * (wide - 1) - 1) // step + 1) for size, wide, step, pad, gap in sides
            )
            written = b * out * math.prod(places)
            read = math.prod(op.shapes[0]) + math.prod(op.shapes[1])
            return 2.0 * written * per_group * math.prod(window), read + written
    return None


def _value(op: Op, at: int) -> str:
    return op.values[at] if at < len(op.values) else ""


def _numbers(text: str, count: int) -> list[int]:
    """Of `[2, 2]`; a single one is for all sides."""
    match = _NUMBERS.fullmatch(text)
    found = [int(each) for each in match[1].split(", ")] if match else []
    return found * count if len(found) == 1 else found


# the places of a convolution's stride, padding, dilation and `transposed` among its arguments
_WINDOWS = {
    "convolution": (3, 4, 5, 6),
    "_convolution": (3, 4, 5, 6),
    "cudnn_convolution": (3, 2, 4, None),
    "miopen_convolution": (4, 3, 5, None),
    "mkldnn_convolution": (4, 3, 5, None),
}
_ALLOW_TF32 = 8  # its place among those of a convolution of cuDNN
# the place of `is_causal`
_CAUSAL = {
    "scaled_dot_product_attention": 5,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_attention_math": 5,
}
_VIEWS = _names("""
    view reshape _unsafe_view transpose t permute expand squeeze unsqueeze slice select as_strided unbind split chunk
    narrow detach alias unfold empty empty_strided empty_like resize size _reshape_alias
""")


def _each(names: dict[float, str]) -> dict[str, float]:
    return {name: flops for flops, found in names.items() for name in found.split()}


# FLOP of each element of the first operand. A function such as exp, sin or rsqrt counts as one, a comparison as none.
_FLOP_EACH = _each(
    {
        0.0: "clone contiguous _to_copy to repeat tril triu flip roll sort topk argmax argmin any all logical_not "
        "bitwise_not",
        1.0: "sum mean amax amin max min prod cumsum relu tanh exp log sqrt rsqrt neg abs sin cos pow erf reciprocal",
        2.0: "norm",
        3.0: "sigmoid",
        4.0: "silu var std logsumexp rms_norm _fused_rms_norm native_batch_norm",
        5.0: "gelu softmax _softmax log_softmax _log_softmax",
        7.0: "layer_norm native_layer_norm native_group_norm",
    }
)
# what is written is small beside what is read
_REDUCING = _names("sum mean amax amin max min any all var std prod argmax argmin norm logsumexp topk")
_COMPARING = _names("eq ne lt gt le ge logical_and logical_or")  # their result is of one byte
_POINTWISE = _each(
    {
        0.0: "eq ne lt gt le ge logical_and logical_or where masked_fill bitwise_and bitwise_or",
        1.0: "add sub mul div rsub maximum minimum clamp remainder fmod atan2",
        3.0: "lerp addcmul addcdiv",
    }
)


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape of the result; what does not go together gives the largest of each."""
    longest = max(map(len, shapes))
    padded = [(1,) * (longest - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))
