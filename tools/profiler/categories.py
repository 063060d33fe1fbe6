"""What kind of work a kernel or an operation does, from its name: one table, the first row that matches counts.

Attention, convolutions and norms come before the generic names of the libraries that they are written with.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

Category = Literal[
    "communication",
    "cache",
    "attention",
    "moe and sorting",
    "gemm",
    "convolution",
    "norm",
    "softmax and reduction",
    "quantization",
    "copy and fill",
    "activation and elementwise",
    "other Triton",
    "compiled code",
    "unclassified",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
PRODUCTS: frozenset[Category] = frozenset({"gemm", "convolution", "attention"})  # on the matrix units

# Kernels of ROCm's and CUDA's libraries, of Inductor and of vLLM and aiter; and the operations of ATen for a CPU.
_TABLE: tuple[tuple[Category, str], ...] = (
    ("communication", r"nccl|rccl|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|quick_?reduce"),
    ("cache", r"reshape_and_cache|kv_?cache|index_put|index_copy"),
    (
        "attention",
        r"^(?!triton_poi_).*(fmha|flash|attn|attention|paged_?att|\bpa_(fwd|decode|prefill|ragged)|mla_|sdpa"
        r"|bwd_kernel_d[kvq])",
    ),
    (
        "moe and sorting",
        r"moe|top_?k|radix_?sort|bitonic|\bsort|_sort|sort_?kernel|grouped_?gemm|\bargsort|nonzero|aten::(sort|topk|argsort|bincount|histc|unique\w*|_unique\w*|masked_select)",
    ),
    (
        "convolution",
        r"miopen.*conv|igemm_(fwd|bwd|wrw)|naive_conv|convasm|im2col|gcnasmconv|implicit_?(gemm|conv)|fprop|dgrad|wgrad"
        r"|grouped_conv|conv([123]d)?_(fwd|bwd|depthwise|grouped)|triton_tem_.*conv|aten::.*conv|mkldnn_conv|cudnn.*conv"
        r"|winograd",
    ),
    (
        "gemm",
        r"cijk_|tensile|kernel_gemm_xdl|devicegemm|gridwisegemm|gemm|gemv|wv_?splitk|llmm1|splitk|_matmul_ogs|triton_tem_"
        r"|_scaled_mm|nvjet|cublas|cutlass.*(gemm|tensorop)|aten::(mm|bmm|addmm|baddbmm|addbmm|matmul|linear|dot|mv|addmv)\b"
        r"|mkldnn_linear|mkl_linear|mkldnn::_linear|_linear_pointwise|_weight_int",
    ),
    ("norm", r"rms_?norm|layer_?norm|group_?norm|batch_?norm|l2_?norm|triton_(red|per)_.*(rsqrt|norm)|aten::.*_norm"),
    (
        "softmax and reduction",
        r"softmax|reduce_kernel|devicereduce|triton_(red|per)_|cub::.*reduce|aten::(sum|mean|amax|amin|max|min|any|all|var|std|prod"
        r"|argmax|argmin|cumsum|logsumexp|norm)\b|scan",
    ),
    ("quantization", r"quant|scaled_.*cast|per_token|fp8_cast"),
    (
        "copy and fill",
        r"memcpy|memset|copybuffer|fillbuffer|fill_|direct_copy|fillfunctor|catarraybatched|copy_kernel|copy_device_to_device"
        r"|aten::(copy_|clone|contiguous|zero_|zeros|ones|full|cat|stack|_to_copy|empty|empty_like|empty_strided|zeros_like|ones_like|full_like|repeat|repeat_interleave|to|t|view"
        r"|transpose|permute|reshape|_reshape_alias|_unsafe_view|as_strided_?|expand|squeeze|unsqueeze|slice|narrow|split|chunk"
        r"|select|unbind|detach|resolve_conj|resolve_neg|resize_|result_type|alias|lift_fresh|movedim|flatten|unflatten)\b",
    ),
    (
        "activation and elementwise",
        r"act_and_mul|silu|gelu|swiglu|relu|sigmoid|tanh|rope|rotary|elementwise|triton_poi_|index|gather|scatter|\bwhere"
        r"|embedding|tri[ul]_|aten::(add|sub|mul|div|neg|exp|log|sqrt|rsqrt|pow|sin|cos|eq|ne|lt|gt|le|ge|abs|clamp|where"
        r"|masked_fill|masked_fill_|add_|mul_|sub_|div_|reciprocal|erf|arange|outer|tril|triu|dropout|native_dropout|one_hot"
        r"|bitwise_\w+|logical_\w+|floor|round|maximum|minimum|rsub)\b",
    ),
    # on a CPU the profiler sees nothing of what Inductor has compiled but the time that the whole of it takes
    ("compiled code", r"^torch-compiled region|^torchdynamo|^pregraph bytecode|^aotdispatcher|^compiledfunction"),
    ("other Triton", r"^triton_|^_?[a-z0-9_]+_kernel(_[0-9a-z]+)?$|graph_\w+_cpp_fused"),
)
_PATTERNS = tuple((category, re.compile(pattern, re.IGNORECASE)) for category, pattern in _TABLE)
_LONGEST = 500  # of a name: a template's may have thousands of characters, and tells all in its first


@lru_cache(maxsize=4096)
def category_of(name: str) -> Category:
    for category, pattern in _PATTERNS:
        if pattern.search(name[:_LONGEST]):
            return category
    return "unclassified"
