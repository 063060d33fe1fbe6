"""A profile of a trace: shares add up, each kernel has a cause with a number, no step may gain more than it says."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tools.profiler import analysis, ceilings, work
from tools.profiler.analysis import Subject
from tools.profiler.result import Ceilings, KernelRow, Profile
from tools.profiler.trace import Launch as Launched
from tools.profiler.trace import Module, Op, Trace

H200 = Ceilings(memory_gbps=4000.0, peak_tflops={"bfloat16": 800.0}, launch_us=2.0, source="measured")
GEMM = Op("aten::mm", ((4096, 4096), (4096, 4096)), ("c10::BFloat16", "c10::BFloat16"))
ADD = Op("aten::add", ((4096, 4096), (4096, 4096)), ("c10::BFloat16", "c10::BFloat16"))
TINY = Op("aten::add", ((17, 16), (17, 16)), ("c10::BFloat16", "c10::BFloat16"))


def launch(
    name: str, start: float, duration: float, op: Op | None = None, call: int | None = 0, **more: object
) -> Launched:
    return Launched(name, start, duration, op=op, call=call, **more)  # type: ignore[arg-type]


def profiled(*launches: Launched, call_us: float = 400.0, calls: int = 1, device: str = "NVIDIA H200") -> Profile:
    trace = Trace(list(launches), calls, on_device=device != "cpu")
    return analysis.profile(trace, Subject("bench.py", device, {"call": call_us}, "sm_90", 132, H200))


def row(profile: Profile, name: str) -> KernelRow:
    return next(each for each in profile.kernels if each.name == name)


def test_two_streams_at_once_are_busy_once_and_calls_are_averaged() -> None:
    found = profiled(launch("a", 0, 10), launch("b", 5, 10, stream=1), launch("c", 20, 5))
    assert (found.busy_us, found.span_us, found.gap_us, found.launches) == (20, 25, 5, 3)
    found = profiled(*(launch("a", 100 * call, 10, call=call) for call in range(4)), calls=4)
    assert (found.busy_us, found.span_us, found.gap_us, found.launches) == (10, 10, None, 1)
    # where no launch tells its call, all are one series
    found = profiled(*(launch("a", 100 * index, 10, call=None) for index in range(4)), calls=4)
    assert (found.busy_us, found.span_us, found.gap_us) == (10, 77.5, 90)


def test_idle_is_of_a_call_without_the_profiler() -> None:
    found = profiled(launch("a", 0, 10), launch("b", 990, 10), call_us=40.0)
    assert (found.busy_us, found.span_us, found.idle_share) == (20, 1000, 0.5)
    assert profiled(launch("a", 0, 10), call_us=0.0).idle_share == 0.0


def test_a_product_near_its_peak_is_bound_by_arithmetic_and_a_sum_by_memory() -> None:
    found = profiled(
        launch("nvjet_gemm", 0, 200, GEMM, module=Module("MLP", "model.py:8", "1")),
        launch("elementwise_add", 200, 30, ADD),
    )
    product, added = row(found, "nvjet_gemm"), row(found, "elementwise_add")
    assert product.tflops == pytest.approx(2 * 4096**3 / 200 / 1e6)
    assert (product.cause, product.category, product.module) == ("compute-bound", "gemm", "MLP")
    assert added.gbps == pytest.approx(3 * 2 * 4096**2 / 30 / 1e3)
    assert added.cause == "memory-bound" and "84% of the memory's bandwidth" in added.why
    cached = row(profiled(launch("elementwise_add", 0, 20, ADD)), "elementwise_add").why
    assert "126% of the memory's bandwidth: its data comes out of the cache" in cached
    assert (product.bound, added.bound) == ("compute", "memory")
    assert found.primary_bottleneck_component == "MLP"


def test_what_a_product_reaches_on_a_cpu_the_machine_reaches() -> None:
    found = profiled(launch("aten::mm", 0, 100, GEMM), launch("aten::mm", 200, 100, GEMM), device="cpu")
    peak = 2 * 4096**3 / 100 / 1e6
    assert found.ceilings.peak_tflops["bfloat16"] == pytest.approx(peak) and peak > H200.peak_tflops["bfloat16"]
    assert row(found, "aten::mm").speed_of_light == pytest.approx(1.0)
    assert any("are taken for the peak" in note for note in found.notes)
    assert H200.peak_tflops["bfloat16"] == 800.0
    on_device = profiled(launch("nvjet_gemm", 0, 100, GEMM))
    assert on_device.ceilings == H200  # a GPU is measured by itself, and has a datasheet
    halves = profiled(launch("splitK", 0, 150, GEMM, part=0.75), launch("reduce", 150, 50, GEMM, part=0.25))
    assert [each.tflops for each in halves.kernels] == [pytest.approx(peak / 2)] * 2  # of a product of 200 us


def test_many_tiny_launches_are_what_is_paid_for() -> None:
    """As in a pipeline for a batch of four: every kernel is over at once, and the device waits for the next."""
    tiny = [launch(f"append_shared_kernel_{i % 3}", 40 * i, 2.0, TINY) for i in range(10)]
    found = profiled(*tiny, call_us=420.0)
    assert found.primary_bottleneck_type == "launch-bound"
    assert all(each.cause == "launch-bound" and "1632 bytes" in each.why for each in found.kernels)
    assert any("launch overhead" in each for each in found.recommendations)
    assert any("waits for 95% of a call" in each for each in found.recommendations)


def test_a_tiny_launch_of_which_no_bytes_are_known_is_launch_overhead() -> None:
    found = profiled(
        launch("append_shared_kernel", 0, 1.6, workgroups=4, workgroup_size=128),
        launch("large_kernel", 20, 8.0, workgroups=4096, workgroup_size=256),
        call_us=60.0,
    )
    assert (row(found, "append_shared_kernel").cause, row(found, "large_kernel").cause) == ("launch-bound", "unknown")
    assert "4 workgroups of 128 threads in 1.6 us" in row(found, "append_shared_kernel").why


def test_an_operation_tells_what_a_kernel_of_no_known_name_does() -> None:
    found = profiled(launch("k3_v2", 0, 10, Op("aten::topk", ((4, 256),), ("float",))), launch("???", 10, 1))
    assert row(found, "k3_v2").category == "moe and sorting"
    assert found.unclassified == pytest.approx(1 / 11)
    assert any("no known kind" in each for each in found.recommendations)


def test_on_a_cpu_the_profilers_own_time_is_taken_out() -> None:
    found = profiled(launch("aten::mm", 0, 300, GEMM), launch("aten::add", 300, 100, ADD), call_us=200.0, device="cpu")
    assert found.busy_us == 200 and [each.time_us for each in found.kernels] == [150, 50]
    assert any("scaled" in note for note in found.notes)
    # each taken as long as its like, these would reach into those after them
    series = [launch("a", 0, 10), launch("a", 20, 30), launch("a", 60, 30), launch("b", 22, 8)]
    found = profiled(*series, call_us=200.0, device="cpu")
    assert found.busy_us == pytest.approx(98) == pytest.approx(sum(row.time_us for row in found.kernels))


@pytest.mark.parametrize(("device", "most_us"), [("cpu", 800.0), ("NVIDIA H200", 300.0)])
def test_what_is_traced_of_another_path_than_the_timed_one_is_said_to_be(device: str, most_us: float) -> None:
    for traced_us, other in ((most_us, False), (most_us + 1, True)):
        found = profiled(launch("aten::mm", 0, traced_us, GEMM), call_us=200.0, device=device)
        assert found.other_path is other and any("another path" in note for note in found.notes) is other


def test_a_trace_without_anything_is_still_a_profile() -> None:
    found = analysis.profile(Trace(notes=["the trace is cut off"]), Subject("bench.py", "cpu", {}))
    assert found.kernels == [] and found.steps == [] and found.notes == ["the trace is cut off"]
    assert [each.category for each in found.categories] == ["unclassified"]


def test_what_a_step_could_gain_is_never_below_what_its_work_takes() -> None:
    found = profiled(
        launch("gemm", 0, 200, GEMM), launch("vectorized_elementwise_kernel", 210, 100, ADD), call_us=400.0
    )
    steps = {each.step: each for each in found.steps}
    assert steps["capture_graph"].speedup == pytest.approx(400 / 300)  # 100 of 400 us are waiting
    assert steps["compile_model"].speedup == pytest.approx(400 / 200)  # and 100 in light kernels
    assert steps["route_gemm"].speedup == pytest.approx(400 / (200 + needed(found, "gemm")))
    assert steps["compose_stack"].speedup == pytest.approx(400 / needed(found, "gemm"))
    assert "25% of it waiting" in steps["capture_graph"].reason


def test_an_audit_has_no_bound_and_loops_over_experts_go_away_with_all_that_is_no_product() -> None:
    experts, elsewhere = Module("Experts", "model.py:8", "1"), Module("Layer", "model.py:20", "2")
    parts = [
        launch("gemm", 0, 200, GEMM, module=experts),
        launch("elementwise_mul", 200, 90, ADD, module=experts),
        launch("elementwise_add", 300, 100, ADD, module=elsewhere),
    ]
    without = {each.step: each for each in profiled(*parts).steps}
    steps = {each.step: each for each in profiled(*parts, launch("sort_kernel", 290, 10, module=experts)).steps}
    assert steps["audit_compute"].speedup is None
    assert steps["audit_compute"].reason.startswith("any work may turn out to be needless: 50% of a call are")
    most, before = steps["fuse_projections"].speedup, without["fuse_projections"].speedup
    assert most is not None and before is not None
    assert 1 / before - 1 / most == pytest.approx(90 / 400)  # the device waits 10 us less, and sorts for as long
    assert ceilings.on_faster(list(steps.values()), "audit_compute", 2.0) == steps["audit_compute"]


def bf16(name: str, *shapes: tuple[int, ...]) -> Op:
    return Op(name, shapes, ("c10::BFloat16",) * len(shapes))


def gain(found: Profile, step: str) -> float:
    most = next(each.speedup for each in found.steps if each.step == step)
    assert most is not None
    return most


def test_scores_that_fused_attention_does_not_write_bound_nothing() -> None:
    rows, heads, scores = (32, 2048, 128), (32, 128, 2048), (32, 2048, 2048)
    found = profiled(
        launch("Cijk_scores", 0, 84, bf16("aten::bmm", rows, heads)),
        launch("softmax_warp_forward", 84, 200, bf16("aten::_softmax", scores)),
        launch("Cijk_values", 284, 84, bf16("aten::bmm", scores, rows)),
        launch("nvjet_gemm", 368, 200, GEMM),
        call_us=568.0,
    )
    assert row(found, "Cijk_scores").speed_of_light == pytest.approx(0.9, abs=0.01)
    assert gain(found, "compose_stack") > gain(found, "swap_attention") == pytest.approx(568 / 200)


def test_a_compiled_copy_for_attention_is_light_work_that_another_attention_may_not_need() -> None:
    copy = launch("triton_poi_fused__scaled_dot_product_attention_clone_3", 0, 100)
    found = profiled(copy, launch("flash_fwd_kernel", 100, 100), call_us=200.0)
    assert gain(found, "compile_model") == pytest.approx(2.0) and gain(found, "swap_attention") > 100


def test_products_that_read_the_same_may_become_one() -> None:
    """As those of keys and values of multi-query attention, which both read a large input for a small result."""
    one, both = (bf16("aten::mm", (8192, 4096), (4096, width)) for width in (128, 256))
    found = profiled(launch("Cijk_k", 0, 20, one), launch("Cijk_v", 20, 20, one), call_us=40.0)
    assert row(found, "Cijk_k").bound == "memory" and gain(found, "route_gemm") < 1.2
    together = work.of(both)
    assert together.bytes and together.flops
    at_best_us = max(together.bytes / 4e6, together.flops / 800e6)
    assert gain(found, "fuse_projections") >= 40 / at_best_us - 1e-9


@pytest.mark.parametrize(
    ("peaks", "dtype", "light"),
    [({"tf32": 400.0}, "tf32", 0.6872), ({}, "tf32", None), ({"float32": 300.0}, "float32", 0.9163)],
)
def test_float32_above_its_peak_is_taken_for_tf32(peaks: dict[str, float], dtype: str, light: float | None) -> None:
    product = Op("aten::mm", ((4096, 4096), (4096, 4096)), ("float", "float"))
    reach = Ceilings(peak_tflops={"float32": 50.0, **peaks})
    trace = Trace([launch("sm80_xmma_gemm", 0, 500, product)], 1, on_device=True)
    found = row(
        analysis.profile(trace, Subject("bench.py", "NVIDIA H100", {"call": 500.0}, ceilings=reach)), "sm80_xmma_gemm"
    )
    assert found.dtype == dtype
    assert found.speed_of_light == (None if light is None else pytest.approx(light, rel=1e-3))
    assert light is None or f"of the peak of {dtype}" in found.why


def two_cases(*launches: Launched, calls: int = 4) -> Profile:
    subject = Subject("bench.py", "NVIDIA H200", {"(tokens=1)": 100.0, "(tokens=512)": 210.0}, "sm_90", 132, H200)
    return analysis.profile(Trace(list(launches), calls, on_device=True), subject)


def test_cases_are_told_apart_and_ceilings_are_their_geometric_mean() -> None:
    tiny = [launch("elementwise", 1000 * call, 5, TINY, call) for call in (0, 1)]
    large = [launch("gemm", 1000 * call, 200, GEMM, call) for call in (2, 3)]
    found = two_cases(*tiny, *large)
    assert [(each.name, each.busy_us, each.launches, each.bottleneck) for each in found.cases] == [
        ("(tokens=1)", 5, 1, "launch-bound"),
        ("(tokens=512)", 200, 1, "compute-bound"),
    ]
    assert found.cases[0].idle_share == pytest.approx(0.95)
    assert (found.call_us, found.busy_us) == (155, 102.5)
    steps = {each.step: each for each in found.steps}
    audit, capture = steps["audit_compute"], steps["capture_graph"]
    assert audit.speedup is None
    assert audit.reason.startswith("any work may turn out to be needless: 5% to 100% of a call, by case, are copies")
    assert capture.speedup == pytest.approx((100 / 5 * 210 / 200) ** 0.5)
    assert "5% to 95% of a call" in capture.reason
    assert found.recommendations[0].startswith("In case (tokens=1) the device waits for 95% of a call with 1 launches")
    assert not found.other_path


def test_one_case_of_another_path_than_the_timed_one_is_enough_to_say_so() -> None:
    traced = [launch("elementwise", 1000 * call, 200 if call < 2 else 100, TINY, call) for call in range(4)]
    found = two_cases(*traced)
    assert found.busy_us < found.call_us and found.other_path
    assert sum("another path" in note for note in found.notes) == 1


@pytest.mark.parametrize("calls", [[0, 1, 2, None], [0, 1, 2], [0, 1, 2, 9], [0, 1, 2, -9]])
def test_cases_that_cannot_be_told_apart_are_taken_together(calls: list[int | None]) -> None:
    found = two_cases(
        *(launch("gemm", 1000.0 * at, 200, GEMM, call) for at, call in enumerate(calls)), calls=len(calls)
    )
    assert found.cases == [] and found.steps
    assert any("cannot be told apart" in note for note in found.notes)


def test_a_kernel_that_is_large_in_one_place_and_tiny_in_another_is_what_takes_its_time() -> None:
    large = [launch("elementwise_add", 100 * at, 30, ADD, module=Module("MLP", "model.py:8", "1")) for at in range(2)]
    tiny = [launch("elementwise_add", 1000 + 10 * at, 2, TINY) for at in range(20)]
    found = profiled(*large, *tiny, call_us=150.0)
    assert row(found, "elementwise_add").cause == "memory-bound"
    assert (found.primary_bottleneck_component, found.primary_bottleneck_type) == ("MLP", "memory-bound")


def needed(found: Profile, name: str) -> float:
    return ceilings.needed_us(row(found, name))


LAUNCHES = st.lists(
    st.builds(
        launch,
        st.sampled_from(["gemm", "flash_fwd", "triton_poi_x", "", "Memcpy"]),
        st.floats(0, 1e6),
        st.floats(0, 1e5),
        st.sampled_from([None, GEMM, ADD, TINY]),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(LAUNCHES, st.integers(0, 4), st.floats(0, 1e6), st.sampled_from(["cpu", "NVIDIA H200"]))
@example(
    [launch("gemm", 0.0, 1.0, Op("aten::add", ((17, 16), (17, 16)), ("c10::BFloat16",) * 2))], 0, 0.0, "NVIDIA H200"
)
def test_shares_of_any_trace_add_up(launches: list[Launched], calls: int, call_us: float, device: str) -> None:
    found = profiled(*launches, call_us=call_us, calls=calls, device=device)
    if sum(each.time_us for each in found.kernels) > 1e-9:  # on a CPU the median counts, which may be nothing
        assert sum(each.share for each in found.categories) == pytest.approx(1.0)
        assert sum(each.share for each in found.kernels) == pytest.approx(1.0)
        assert sum(each.share for each in found.modules) == pytest.approx(1.0)
    assert 0.0 <= found.idle_share <= 1.0
    assert all(each.speedup is None or each.speedup >= 1.0 for each in found.steps)
    assert Profile.model_validate_json(found.model_dump_json()) == found
