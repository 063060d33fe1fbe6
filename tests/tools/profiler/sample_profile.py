"""Made-up samples of profiles: a decoder of eight layers, written by hand in PyTorch, on an H200 and on a CPU.

Nobody measured these numbers. They are plausible, and they agree with each other: shares, gaps and categories are
computed from the timeline.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from tools.hardware import find_device
from tools.profiler.categories import Category
from tools.profiler.result import (
    CaseRow,
    CategoryShare,
    Cause,
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
_MODEL = "/work/target/model.py"


def h200_decoder() -> Profile:
    """512 tokens through eight layers of width 2048 in bfloat16; eager, so that small kernels wait for the host."""
    peak, memory = 989.4, 4800.0
    rows = [
        _gemm("nvjet_tst_128x64_64x8_1x2_h_bz_TNT", 9.6, 512, 2048, 2048, "Attention", 41),
        _gemm("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", 19.4, 512, 2048, 5632, "MLP", 73),
        _gemm("nvjet_tst_192x256_64x4_2x1_v_bz_coopA_TNT", 112.0, 512, 2048, 32000, "Decoder", 101),
        _row(
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_nn_align8>"
            "(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_nn_align8::Params)",
            "gemm",
            11.2,
            12.6e6,
            1.07e9,
            "bfloat16",
            "aten::bmm",
            "Attention",
            41,
            "low occupancy",
            "24 of 64 warps fit, by its 168 registers",
        ),
        _row(
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>"
            "(float*, float const*, int, int, int)",
            "softmax and reduction",
            14.1,
            33.6e6,
            None,
            "float32",
            "aten::_softmax",
            "Attention",
            41,
            "memory-bound",
            "half of the memory's bandwidth; float32 for bfloat16",
        ),
        _row(
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_"
            "kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)",
            "copy and fill",
            7.4,
            25.2e6,
            0.0,
            "float32",
            "aten::copy_",
            "Attention",
            41,
            "memory-bound",
            "",
        ),
        _row(
            "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
            "at::native::binary_internal::MulFunctor<float>>, std::array<char*, 3ul>>(int)",
            "activation and elementwise",
            3.1,
            6.3e6,
            1.05e6,
            "bfloat16",
            "aten::mul",
            "RMSNorm",
            12,
            "launch-bound",
            "little longer than the 2.3 µs of a launch",
        ),
        _row(
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, "
            "float, float>, unsigned int, float, 4, 4>>",
            "softmax and reduction",
            4.2,
            4.2e6,
            None,
            "float32",
            "aten::mean",
            "RMSNorm",
            12,
            "under-filled grid",
            "64 workgroups on 132 compute units",
        ),
        _row(
            "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)"
            "::{lambda()#1}, std::array<char*, 2ul>>",
            "activation and elementwise",
            4.4,
            11.5e6,
            2.9e6,
            "bfloat16",
            "aten::silu",
            "MLP",
            73,
            "launch-bound",
            "little longer than the 2.3 µs of a launch",
        ),
        _row(
            "rope_interleaved_v2",
            "unclassified",
            5.2,
            None,
            None,
            "bfloat16",
            "custom::rope",
            "Attention",
            41,
            "unknown",
            "",
        ),
        _row(
            "Memcpy DtoD (Device -> Device)",
            "copy and fill",
            2.6,
            2.1e6,
            0.0,
            "",
            "aten::contiguous",
            "Attention",
            41,
            "launch-bound",
            "",
        ),
    ]
    layer = [5, 6, 7, 6, 6, 0, 0, 0, 9, 9, 10, 3, 6, 4, 5, 3, 10, 0, 6, 5, 6, 7, 6, 6, 1, 1, 8, 6, 1, 6]
    device = find_device("NVIDIA H200", "sm_90")
    assert device is not None
    ceilings = Ceilings(
        memory_gbps=memory,
        peak_tflops=dict(device.peak_tflops),
        launch_us=2.3,
        source="NVIDIA, H200 Tensor Core GPU datasheet",
    )
    _roof(rows, memory, {"bfloat16": peak, "float32": 66.9})
    profile = _built(
        "bench.py:generate", "NVIDIA H200", "sm_90", rows, layer * _LAYERS + [7, 6, 2], gap_us=1.7, ceilings=ceilings
    )
    profile.steps = [
        StepCeiling(
            step="write_kernels",
            speedup=1.34,
            reason="norms and elementwise kernels in as few passes over memory as they need",
        ),
        StepCeiling(step="fuse_projections", speedup=1.06, reason="24 projections of one input each become 8"),
        StepCeiling(step="swap_attention", speedup=1.21, reason="hand-written attention without its scores in memory"),
        StepCeiling(
            step="compile_model",
            speedup=1.52,
            reason="what is not a product or attention, fused; gaps as short as the device allows",
        ),
        StepCeiling(step="route_gemm", speedup=1.18, reason="products at 80% of the measured peak"),
        StepCeiling(step="capture_graph", speedup=1.27, reason="no gaps between 243 launches"),
    ]
    profile.cases = [
        CaseRow(
            name="prefill (tokens=512)",
            call_us=3_400.0,
            busy_us=2_600.0,
            idle_share=0.235,
            launches=243.0,
            bottleneck="compute-bound",
        ),
        CaseRow(
            name="decode (tokens=1)",
            call_us=1_300.0,
            busy_us=240.0,
            idle_share=0.815,
            launches=243.0,
            bottleneck="launch-bound",
        ),
    ]
    profile.primary_bottleneck_component = "MLP"
    profile.primary_bottleneck_type = "compute-bound"
    profile.recommendations = [
        "Capture the call as a graph: the device waits for the host between most kernels.",
        "Replace the hand-written attention: 33.6 MB of scores are written and read in float32 in every layer.",
        "Write the norm as one kernel: it is six launches now, none much longer than a launch takes.",
    ]
    profile.deeper = [
        "ncu --set full --kernel-name regex:softmax_warp_forward --launch-count 3 --export softmax --force-overwrite "
        ".venv/bin/python bench.py --entry generate",
        "nsys profile --trace cuda,nvtx --output decoder .venv/bin/python bench.py --entry generate",
    ]
    profile.notes = [
        "Registers and LDS of the kernels of cuBLAS are not in the trace.",
        "The operations of 2 kernels have shapes that do not tell their bytes.",
    ]
    return profile


def cpu_decoder() -> Profile:
    """The same in float32 on two cores, where a row is an operation, there is no launch to wait for and no ceiling."""
    rows = [
        _gemm("aten::addmm", 5_650.0, 512, 2048, 2048, "Attention", 41, "float32"),
        _gemm("aten::mm", 15_900.0, 512, 2048, 5632, "MLP", 73, "float32"),
        _row("aten::bmm", "gemm", 2_400.0, 25e6, 1.07e9, "float32", "aten::bmm", "Attention", 41, "compute-bound", ""),
        _row(
            "aten::_softmax",
            "softmax and reduction",
            3_900.0,
            33.6e6,
            None,
            "float32",
            "aten::_softmax",
            "Attention",
            41,
            "memory-bound",
            "",
        ),
        _row(
            "aten::mul",
            "activation and elementwise",
            410.0,
            12.6e6,
            1.05e6,
            "float32",
            "aten::mul",
            "RMSNorm",
            12,
            "memory-bound",
            "",
        ),
        _row(
            "aten::mean",
            "softmax and reduction",
            380.0,
            4.2e6,
            None,
            "float32",
            "aten::mean",
            "RMSNorm",
            12,
            "memory-bound",
            "",
        ),
        _row(
            "aten::copy_",
            "copy and fill",
            700.0,
            8.4e6,
            0.0,
            "float32",
            "aten::copy_",
            "Attention",
            41,
            "memory-bound",
            "",
        ),
    ]
    layer = [4, 5, 4, 0, 0, 0, 6, 6, 2, 3, 2, 6, 0, 4, 5, 4, 1, 1, 4, 1]
    profile = _built(
        "bench.py:generate",
        "Intel Xeon Platinum 8481C",
        "x86_64",
        rows,
        layer * _LAYERS,
        gap_us=9.0,
        ceilings=Ceilings(),
    )
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
    profile.made = Made(date=MADE.date, torch="<img src=x onerror=alert(1)>", triton="\x1b[2J", platform="</script>")
    start, spans = 0.0, []
    for index in range(count):
        kernel = index * 7919 % len(profile.kernels)
        duration = profile.kernels[kernel].mean_us
        spans.append(Span(start_us=start, duration_us=duration, kernel=kernel, stream=7 if index % 5 else index % 3))
        start += duration + (0.9 if index % 997 else 4_000.0)
    profile.timeline = spans
    return profile


def _gemm(
    name: str, mean_us: float, m: int, k: int, n: int, module: str, line: int, dtype: str = "bfloat16"
) -> KernelRow:
    size = 2 if dtype == "bfloat16" else 4
    op = "aten::linear" if size == 2 else name
    return _row(
        name,
        "gemm",
        mean_us,
        float(size * (m * k + k * n + m * n)),
        2.0 * m * k * n,
        dtype,
        op,
        module,
        line,
        "compute-bound",
        f"{m}×{k} by {k}×{n}",
    )


def _row(
    name: str,
    category: Category,
    mean_us: float,
    moved: float | None,
    flops: float | None,
    dtype: str,
    op: str,
    module: str,
    line: int,
    cause: Cause,
    why: str,
) -> KernelRow:
    row = KernelRow(
        name=name,
        category=category,
        calls=0,
        time_us=0,
        share=0,
        mean_us=mean_us,
        op=op,
        module=module,
        where=f"{_MODEL}:{line}",
        bytes=moved,
        flops=flops,
        dtype=dtype,
        cause=cause,
        why=why,
    )
    row.gbps = None if moved is None else moved / mean_us / 1e3
    row.tflops = flops / mean_us / 1e6 if flops else None
    row.launch = Launch(workgroups=264, workgroup_size=256, registers=168, lds_bytes=49_152, occupancy=0.375)
    return row


def _roof(rows: Sequence[KernelRow], memory_gbps: float, peaks: dict[str, float]) -> None:
    for row in rows:
        reached = [(row.gbps or 0.0) / memory_gbps, (row.tflops or 0.0) / peaks.get(row.dtype, float("inf"))]
        row.speed_of_light = max(reached) if row.gbps is not None else None


def _built(
    entry: str,
    device: str,
    architecture: str,
    rows: list[KernelRow],
    order: list[int],
    *,
    gap_us: float,
    ceilings: Ceilings,
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
        entry=entry,
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
                name=name,
                where=wheres[name],
                time_us=us,
                share=us / busy,
                instances=1 if name == "Decoder" else 2 * _LAYERS if name == "RMSNorm" else _LAYERS,
            )
            for name, us in by_module.items()
        ],
    )
