"""Made-up samples of profiles: a decoder of eight layers, written by hand in PyTorch, on an H200 and on a CPU.

Nobody measured these numbers. They are plausible, and they agree with each other: shares, gaps and categories are
computed from the timeline.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from datetime import UTC, datetime

from tools.hardware import find_device
from tools.profiler.categories import Category
from tools.profiler.result import (
    CaseRow,
    CategoryShare,
    Ceilings,
    KernelRow,
    Launch,
    Made,
    ModuleRow,
    Profile,
    Span,
    StepCeiling,
)

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
MADE = Made(date=datetime(2026, 11, 22, 6, 37, tzinfo=UTC), torch="2.11.0", triton="3.6.0", platform="CUDA 13.0")
_INSTANCES = {"Decoder": 1, "RMSNorm": 2 * _LAYERS}


# name | category | µs | bytes | FLOP | dtype | operation | module:line | cause | why
_H200_ROWS = """
nvjet_tst_128x64_64x8_1x2_h_bz_TNT|gemm|9.6|12582912|4.29e9|bfloat16|aten::linear|Attention:41|compute-bound|512×2048 by 2048×2048
nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT|gemm|19.4|30932992|1.1811e10|bfloat16|aten::linear|MLP:73|compute-bound|512×2048 by 2048×5632
nvjet_tst_192x256_64x4_2x1_v_bz_coopA_TNT|gemm|112.0|165937152|6.7109e10|bfloat16|aten::linear|Decoder:101|compute-bound|512×2048 by 2048×32000
void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_nn_align8>(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_nn_align8::Params)|gemm|11.2|12.6e6|1.07e9|bfloat16|aten::bmm|Attention:41|low occupancy|24 of 64 warps fit, by its 168 registers
void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*, int, int, int)|softmax and reduction|14.1|33.6e6||float32|aten::_softmax|Attention:41|memory-bound|half of the memory's bandwidth; float32 for bfloat16
void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)|copy and fill|7.4|25.2e6|0|float32|aten::copy_|Attention:41|memory-bound|
void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>, std::array<char*, 3ul>>(int)|activation and elementwise|3.1|6.3e6|1.05e6|bfloat16|aten::mul|RMSNorm:12|launch-bound|little longer than the 2.3 µs of a launch
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4, 4>>|softmax and reduction|4.2|4.2e6||float32|aten::mean|RMSNorm:12|under-filled grid|64 workgroups on 132 compute units
void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2ul>>|activation and elementwise|4.4|11.5e6|2.9e6|bfloat16|aten::silu|MLP:73|launch-bound|little longer than the 2.3 µs of a launch
rope_interleaved_v2|unclassified|5.2|||bfloat16|custom::rope|Attention:41|unknown|
Memcpy DtoD (Device -> Device)|copy and fill|2.6|2.1e6|0||aten::contiguous|Attention:41|launch-bound|
"""  # noqa: E501
_CPU_ROWS = """
aten::addmm|gemm|5650|25165824|4.29e9|float32|aten::addmm|Attention:41|compute-bound|512×2048 by 2048×2048
aten::mm|gemm|15900|61865984|1.1811e10|float32|aten::mm|MLP:73|compute-bound|512×2048 by 2048×5632
aten::bmm|gemm|2400|25e6|1.07e9|float32|aten::bmm|Attention:41|compute-bound|
aten::_softmax|softmax and reduction|3900|33.6e6||float32|aten::_softmax|Attention:41|memory-bound|
aten::mul|activation and elementwise|410|12.6e6|1.05e6|float32|aten::mul|RMSNorm:12|memory-bound|
aten::mean|softmax and reduction|380|4.2e6||float32|aten::mean|RMSNorm:12|memory-bound|
aten::copy_|copy and fill|700|8.4e6|0|float32|aten::copy_|Attention:41|memory-bound|
"""
_STEPS = """
write_kernels|1.34|norms and elementwise kernels in as few passes over memory as they need
fuse_projections|1.06|24 projections of one input each become 8
swap_attention|1.21|hand-written attention without its scores in memory
compile_model|1.52|what is not a product or attention, fused; gaps as short as the device allows
route_gemm|1.18|products at 80% of the measured peak
capture_graph|1.27|no gaps between 243 launches
"""


def h200_decoder() -> Profile:
    """512 tokens through eight layers of width 2048 in bfloat16; eager, so that small kernels wait for the host."""
    device = find_device("NVIDIA H200", "sm_90")
    assert device is not None
    ceilings = Ceilings(memory_gbps=4800.0, peak_tflops=dict(device.peak_tflops), launch_us=2.3, source="a datasheet")
    rows = _rows(_H200_ROWS)
    for row in rows:
        reached = [(row.gbps or 0.0) / 4800.0, (row.tflops or 0.0) / device.peak_tflops.get(row.dtype, float("inf"))]
        row.speed_of_light = max(reached) if row.gbps is not None else None
    layer = [5, 6, 7, 6, 6, 0, 0, 0, 9, 9, 10, 3, 6, 4, 5, 3, 10, 0, 6, 5, 6, 7, 6, 6, 1, 1, 8, 6, 1, 6]
    profile = _built("NVIDIA H200", "sm_90", rows, layer * _LAYERS + [7, 6, 2], 1.7, ceilings)
    profile.steps = [
        StepCeiling(step=step, speedup=float(speedup), reason=reason) for step, speedup, reason in _split(_STEPS)
    ]
    cases = [
        ("prefill (tokens=512)", 3_400.0, 2_600.0, 0.235, "compute-bound"),
        ("decode (tokens=1)", 1_300.0, 240.0, 0.815, "launch-bound"),
    ]
    profile.cases = [
        CaseRow(name=name, call_us=call, busy_us=busy, idle_share=idle, launches=243.0, bottleneck=bottleneck)
        for name, call, busy, idle, bottleneck in cases
    ]
    profile.primary_bottleneck_component = "MLP"
    profile.primary_bottleneck_type = "compute-bound"
    profile.recommendations = [
        "Capture the call as a graph: the device waits for the host between most kernels.",
        "Replace the hand-written attention: 33.6 MB of scores are written and read in float32 in every layer.",
    ]
    profile.deeper = [
        "ncu --set full --kernel-name regex:softmax_warp_forward --launch-count 3 --export softmax --force-overwrite "
        ".venv/bin/python bench.py --entry generate",
    ]
    profile.notes = ["Registers and LDS of the kernels of cuBLAS are not in the trace."]
    return profile


def cpu_decoder() -> Profile:
    """The same in float32 on two cores, where a row is an operation, there is no launch to wait for and no ceiling."""
    layer = [4, 5, 4, 0, 0, 0, 6, 6, 2, 3, 2, 6, 0, 4, 5, 4, 1, 1, 4, 1]
    profile = _built("Intel Xeon Platinum 8481C", "x86_64", _rows(_CPU_ROWS), layer * _LAYERS, 9.0, Ceilings())
    profile.notes = ["On a CPU a row is an operation and not a kernel.", "What this CPU can reach is not known."]
    return profile


def nothing_seen() -> Profile:
    """A profile in which no kernel was seen: everything is empty, and what has no number has none."""
    return Profile(
        entry="bench.py:generate",
        device="",
        calls=0,
        call_us=float("nan"),
        busy_us=0.0,
        span_us=0.0,
        idle_share=float("nan"),
        notes=["The trace is cut off."],
    )


def hostile() -> Profile:
    """Names that try to be markup, to end the data, to write to a terminal, or to fill the page; numbers that are not.

    The names begin alike for a person and sort by their first sign, so that no two are equal.
    """
    profile = h200_decoder()
    profile.made = Made(date=MADE.date, torch="<img src=x onerror=alert(1)>", triton="\x1b[2J", platform="</script>")
    nan, inf = float("nan"), float("inf")
    for index, name in enumerate(HOSTILE):
        profile.kernels.append(
            KernelRow(
                name=name,
                category="unclassified",
                calls=nan,
                time_us=inf,
                share=-inf if index % 2 else nan,
                mean_us=inf,
                op=name,
                module=name,
                where=f"/{name}.py:1",
                bytes=nan,
                flops=inf,
                dtype=name[:40],
                gbps=inf,
                tflops=nan,
                speed_of_light=nan,
                why=name,
                launch=Launch(counters={name: nan}),
            )
        )
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


def _split(table: str) -> list[list[str]]:
    return [line.split("|") for line in table.strip().splitlines()]


def _rows(table: str) -> list[KernelRow]:
    launch = Launch(workgroups=264, workgroup_size=256, registers=168, lds_bytes=49_152, occupancy=0.375)
    rows = []
    for name, category, mean_us, moved, flops, dtype, op, place, cause, why in _split(table):
        module, _, line = place.partition(":")
        fields = dict(name=name, category=category, dtype=dtype, op=op, module=module, cause=cause, why=why)
        fields |= dict(where=f"/work/target/model.py:{line}", launch=launch, bytes=moved or None, flops=flops or None)
        row = KernelRow.model_validate({**fields, "calls": 0, "time_us": 0, "share": 0, "mean_us": mean_us})
        row.gbps = None if row.bytes is None else row.bytes / row.mean_us / 1e3
        row.tflops = row.flops / row.mean_us / 1e6 if row.flops else None
        rows.append(row)
    return rows


def _built(
    device: str, architecture: str, rows: list[KernelRow], order: list[int], gap_us: float, ceilings: Ceilings
) -> Profile:
    """All numbers that follow from the kernels, the order of their launches and the gaps between them."""
    spans: list[Span] = []
    gaps: list[float] = []
    now = 0.0
    for place, index in enumerate(order):
        duration = rows[index].mean_us * (0.94 + 0.01 * (place * 7 % 13))
        spans.append(Span(start_us=round(now, 3), duration_us=round(duration, 3), kernel=index, stream=7))
        gaps.append(gap_us * (0.6 + 0.1 * (place * 5 % 9)) + (22 * gap_us if place % 61 == 60 else 0.0))
        now += duration + gaps[-1]
    span = spans[-1].start_us + spans[-1].duration_us
    by_kernel: dict[int, list[float]] = defaultdict(list)
    for each in spans:
        by_kernel[each.kernel].append(each.duration_us)
    busy = sum(each.duration_us for each in spans)
    by_category: dict[Category, float] = defaultdict(float)
    by_module: dict[str, float] = defaultdict(float)
    for index, times in by_kernel.items():
        row = rows[index]
        row.calls, row.time_us, row.share = float(len(times)), sum(times), sum(times) / busy
        by_category[row.category] += row.time_us
        by_module[row.module] += row.time_us
    wheres = {row.module: row.where for row in rows}
    return Profile(
        entry="bench.py:generate",
        made=MADE,
        device=device,
        architecture=architecture,
        calls=20,
        call_us=span + 31.0,
        busy_us=busy,
        span_us=span,
        idle_share=1 - busy / (span + 31.0),
        gap_us=statistics.median(gaps[:-1]),
        launches=float(len(order)),
        ceilings=ceilings,
        kernels=rows,
        timeline=spans,
        categories=[CategoryShare(category=name, time_us=us, share=us / busy) for name, us in by_category.items()],
        modules=[
            ModuleRow(
                name=name, where=wheres[name], time_us=us, share=us / busy, instances=_INSTANCES.get(name, _LAYERS)
            )
            for name, us in by_module.items()
        ],
    )
