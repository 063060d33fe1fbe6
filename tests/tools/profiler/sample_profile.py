"""Samples of profiles: a decoder of eight layers, written by hand in PyTorch, on an H200 and on a CPU.

Nobody measured these times. They are plausible, and all else is computed from them as for a trace.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tools.hardware import find_device
from tools.profiler import analysis
from tools.profiler.analysis import Subject
from tools.profiler.result import CaseRow, Ceilings, KernelRow, Launch, Made, ModuleRow, Profile, Span, StepCeiling
from tools.profiler.trace import Launch as Launched
from tools.profiler.trace import Module, Op, Trace

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>alert(1)</script>",
    "\"'`&amp;</title><svg onload=alert(1)>${alert(1)}",
    "line\u2028and paragraph\u2029separators",
    "a NUL \x00, an escape \x1b[31mred\x1b]0;title\x07 and a bell",
    "right to left \u202egnp.exe\u2066 mark",
    "half a character \ud83d",
    "@@PROFILE@@ @@POLICY@@ @@TITLE@@",
    "漢字の名前" * 40,
    "k" * 5000,
)
_LAYERS = 8
SHAPE: dict[str, Any] = dict(stream=7, call=0, workgroups=264, workgroup_size=256, registers=168, lds_bytes=49_152)
MADE = Made(date=datetime(2026, 11, 22, 6, 37, tzinfo=UTC), torch="2.11.0", triton="3.6.0", platform="CUDA 13.0")

# name | µs | operation | module:line | type | shapes of the operands
_H200_ROWS = """
nvjet_tst_128x64_64x8_1x2_h_bz_TNT|9.6|aten::linear|Attention:41|c10::BFloat16|512x2048 2048x2048
nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT|19.4|aten::linear|MLP:73|c10::BFloat16|512x2048 5632x2048
nvjet_tst_192x256_64x4_2x1_v_bz_coopA_TNT|112.0|aten::linear|Decoder:101|c10::BFloat16|512x2048 32000x2048
void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_nn_align8>(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_nn_align8::Params)|11.2|aten::bmm|Attention:41|c10::BFloat16|16x512x128 16x128x512
void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*, int, int, int)|14.1|aten::_softmax|Attention:41|float|16x512x512
void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)|7.4|aten::copy_|Attention:41|float|16x512x512 16x512x512
void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>, std::array<char*, 3ul>>(int)|3.1|aten::mul|RMSNorm:12|c10::BFloat16|512x2048 2048
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4, 4>>|4.2|aten::mean|RMSNorm:12|float|512x2048
void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2ul>>|4.4|aten::silu|MLP:73|c10::BFloat16|512x5632
rope_interleaved_v2|5.2|custom::rope|Attention:41|c10::BFloat16|512x2048
Memcpy DtoD (Device -> Device)|2.6|aten::contiguous|Attention:41|c10::BFloat16|512x2048
"""  # noqa: E501
_CPU_ROWS = """
aten::addmm|5650|aten::addmm|Attention:41|float|2048 512x2048 2048x2048
aten::mm|15900|aten::mm|MLP:73|float|512x2048 2048x5632
aten::bmm|2400|aten::bmm|Attention:41|float|16x512x128 16x128x512
aten::_softmax|3900|aten::_softmax|Attention:41|float|16x512x512
aten::mul|410|aten::mul|RMSNorm:12|float|512x2048 2048
aten::mean|380|aten::mean|RMSNorm:12|float|512x2048
aten::copy_|700|aten::copy_|Attention:41|of another world|512x2048
"""


def h200_decoder() -> Profile:
    """512 tokens through eight layers of width 2048 in bfloat16; eager, so that small kernels wait for the host."""
    device = find_device("NVIDIA H200", "sm_90")
    assert device is not None
    ceilings = Ceilings(memory_gbps=4800.0, peak_tflops=dict(device.peak_tflops), launch_us=2.3, source="a datasheet")
    layer = [5, 6, 7, 6, 6, 0, 0, 0, 9, 9, 10, 3, 6, 4, 5, 3, 10, 0, 6, 5, 6, 7, 6, 6, 1, 1, 8, 6, 1, 6]
    profile = _built(_H200_ROWS, layer * _LAYERS + [7, 6, 2], 1.7, "NVIDIA H200", "sm_90", ceilings)
    cases = [
        ("prefill (tokens=512)", 3_400.0, 2_600.0, 0.235, "compute-bound"),
        ("decode (tokens=1)", 1_300.0, 240.0, 0.815, "launch-bound"),
    ]
    profile.cases = [
        CaseRow(name=name, call_us=call, busy_us=busy, idle_share=idle, launches=243.0, bottleneck=bottleneck)
        for name, call, busy, idle, bottleneck in cases
    ]
    profile.deeper = [
        "ncu --set full --kernel-name regex:softmax_warp_forward --launch-count 3 --export softmax --force-overwrite "
        ".venv/bin/python bench.py --entry generate"
    ]
    profile.notes = ["Registers and LDS of the kernels of cuBLAS are not in the trace."]
    return profile


def cpu_decoder() -> Profile:
    """The same in float32 on two cores, where a row is an operation, there is no launch to wait for and no ceiling."""
    layer = [4, 5, 4, 0, 0, 0, 6, 6, 2, 3, 2, 6, 0, 4, 5, 4, 1, 1, 4, 1]
    return _built(_CPU_ROWS, layer * _LAYERS, 9.0, "cpu", "", Ceilings())


def nothing_seen() -> Profile:
    """A profile in which no kernel was seen: everything is empty, and what has no number has none."""
    nan = float("nan")
    numbers = dict(calls=0, call_us=nan, busy_us=0.0, span_us=0.0, idle_share=nan)
    return Profile.model_validate(
        {"entry": "bench.py:generate", "device": "", "notes": ["The trace is cut off."], **numbers}
    )


def hostile() -> Profile:
    """Names that try to be markup, to end the data, to write to a terminal, or to fill the page; numbers that are not.

    The names begin alike for a person and sort by their first sign, so that no two are equal.
    """
    profile = h200_decoder()
    profile.made = Made(date=MADE.date, torch="<img src=x onerror=alert(1)>", triton="\x1b[2J", platform="</script>")
    nan, inf = float("nan"), float("inf")
    for index, name in enumerate(HOSTILE):
        numbers = dict(calls=nan, time_us=inf, share=-inf if index % 2 else nan, mean_us=inf, bytes=nan, flops=inf)
        texts = dict(name=name, op=name, module=name, where=f"/{name}.py:1", dtype=name[:40], why=name)
        row = KernelRow.model_validate({"category": "unclassified", **numbers, **texts})
        row.gbps, row.tflops, row.speed_of_light, row.launch = inf, nan, nan, Launch(counters={name: nan})
        profile.kernels.append(row)
        profile.modules.append(ModuleRow(name=name, where=name, time_us=nan, share=inf))
        profile.steps.append(StepCeiling(step=name, speedup=nan, reason=name))
        profile.cases.append(
            CaseRow(name=name, call_us=inf, busy_us=nan, idle_share=nan, launches=nan, bottleneck=name)
        )
        profile.timeline.append(Span(start_us=nan, duration_us=inf, kernel=10**6 + index))
    profile.entry, profile.device, profile.architecture = HOSTILE[0], HOSTILE[-1], HOSTILE[1]
    profile.primary_bottleneck_component = profile.primary_bottleneck_type = HOSTILE[1]
    profile.ceilings = Ceilings(memory_gbps=inf, peak_tflops={HOSTILE[0]: nan, "bfloat16": 989.4}, source=HOSTILE[2])
    profile.recommendations, profile.deeper, profile.notes = [*HOSTILE], [*HOSTILE], [*HOSTILE]
    profile.gap_us, profile.call_us = nan, inf
    return profile


EVERY = (h200_decoder, cpu_decoder, nothing_seen, hostile)


def many_spans(count: int = 20_000) -> Profile:
    """The decoder with a timeline of so many launches, on three streams."""
    profile = h200_decoder()
    start, spans = 0.0, []
    for index in range(count):
        kernel = index * 7919 % len(profile.kernels)
        duration = profile.kernels[kernel].mean_us
        spans.append(Span(start_us=start, duration_us=duration, kernel=kernel, stream=7 if index % 5 else index % 3))
        start += duration + (0.9 if index % 997 else 4_000.0)
    profile.timeline = spans
    return profile


def _built(table: str, order: list[int], gap_us: float, device: str, architecture: str, ceilings: Ceilings) -> Profile:
    """From the launches of the kernels in this order, with gaps between them."""
    rows = [line.split("|") for line in table.strip().splitlines()]
    launches, now = list[Launched](), 0.0
    for place, index in enumerate(order):
        name, us, op, module, dtype, operands = rows[index]
        shapes = tuple(tuple(map(int, each.split("x"))) for each in operands.split())
        where, _, line = module.partition(":")
        duration = float(us) * (0.94 + 0.01 * (place * 7 % 13))
        launched = Launched(name, now, duration, op=Op(op, shapes, (dtype,) * len(shapes)), **SHAPE)
        launches.append(replace(launched, module=Module(where, f"/work/target/model.py:{line}", "1")))
        now += duration + gap_us * (0.6 + 0.1 * (place * 5 % 9)) + (22 * gap_us if place % 61 == 60 else 0.0)
    trace = Trace(launches, 1, on_device=device != "cpu")
    profile = analysis.profile(
        trace, Subject("bench.py:generate", device, {"call": now + 31.0}, architecture, 132, ceilings)
    )
    profile.calls, profile.made = 20, MADE
    return profile
