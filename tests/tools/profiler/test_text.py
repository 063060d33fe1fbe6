"""A profile in a terminal says what is known, in its units, within 100 columns, and nothing to the terminal itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tools.profiler import sample_profile
from tools.plain_text import one_line, width_of
from tools.profiler import text
from tools.profiler.result import CategoryShare, KernelRow, Profile


@pytest.mark.parametrize("sample", sample_profile.EVERY, ids=lambda sample: sample.__name__)
def test_no_line_is_wider_than_100_columns(sample: Callable[[], Profile]) -> None:
    profile = sample()
    if sample is sample_profile.hostile:
        profile.deeper = []
    assert max(width_of(line) for line in text.render(profile, most_kernels=99).splitlines()) <= 100


def test_nothing_that_a_target_says_reaches_the_terminal_as_a_command() -> None:
    shown = text.render(sample_profile.hostile(), most_kernels=99, most_modules=99)
    assert [sign for sign in shown if not sign.isprintable() and sign != "\n"] == []
    assert "[31mred" in shown, "the name itself is shown"
    shown.encode()  # no half of a character


def test_the_head_has_every_number_with_its_unit() -> None:
    head = text.render(sample_profile.h200_decoder()).partition("\n\nWhere")[0]
    assert "bench.py:generate on NVIDIA H200 (sm_90), 20 calls" in head
    assert "2.39 ms per call" in head
    assert "1.83 ms of a call, idle for 23.3% of it" in head
    assert "243 per call; with the profiler 2.36 ms from the first to the last, median gap 1.70 µs" in head
    assert "4,800 GB/s" in head and "bfloat16 989" in head and "one launch every 2.30 µs" in head


def test_categories_come_with_the_largest_first_and_what_is_unclassified_last_even_when_there_is_none() -> None:
    lines = _section(sample_profile.h200_decoder(), "Where the device's time goes")
    assert [line.split("  ")[1] for line in lines[::4]] == ["gemm", "unclassified"]
    lengths = [line.count("█") for line in lines]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > 16
    for sample in (sample_profile.cpu_decoder, sample_profile.nothing_seen):
        last = _section(sample(), "Where the device's time goes")[-1]
        assert last.split() == ["unclassified", "0.0%", "0.00", "µs"]


def test_a_kernel_has_its_numbers_on_one_line_and_its_origin_on_the_next() -> None:
    lines = _section(sample_profile.h200_decoder(), "Kernels")
    assert lines[0].split() == ["#", "share", "calls", "mean", "GB/s", "TFLOP/s", "limit", "cause", "name"]
    assert lines[1].split()[:8] == ["1", "25.4%", "24", "19.4", "µs", "1,598", "610", "62%"]
    assert lines[1].split()[9] == "compute-bound" and lines[1].split()[10].startswith("nvjet_tst_128x256")
    assert lines[2].strip() == "aten::linear in MLP (/work/target/model.py:73): 62% of the peak of bfloat16"


def test_kernels_that_are_not_shown_are_counted_and_what_is_not_known_is_a_dash() -> None:
    lines = _section(sample_profile.h200_decoder(), "Kernels", most_kernels=2)
    assert lines[-1] == "  and 9 more, 57.9% of the time together"
    lines = _section(sample_profile.cpu_decoder(), "Kernels")
    copied = next(line for line in lines if line.endswith("aten::copy_"))
    assert copied.split()[5:9] == ["–", "–", "–", "unknown"]
    assert "not known for this device" in text.render(sample_profile.cpu_decoder())


def test_a_profile_without_anything_says_so() -> None:
    shown = text.render(sample_profile.nothing_seen())
    assert "none were seen" in shown and "idle for –" in shown and "The trace is cut off." in shown
    assert not any(word in shown.lower() for word in ("nan", "none\n", "inf "))


def test_cases_and_steps_have_their_own_lines_and_advice_can_be_left_out() -> None:
    shown = " ".join(text.render(sample_profile.h200_decoder()).split())
    for said in ("decode (tokens=1)", "1.30 ms", "the mean of 2 cases", "route_gemm 1.28× 22% of a call could go"):
        assert said in shown
    shown = text.render(sample_profile.h200_decoder(), advice=False)
    assert not any(title in shown for title in ("What each step could gain", "What to do", "For a closer look"))
    assert "Where the device's time goes" in shown and "Primary bottleneck" in shown


def test_a_long_command_is_broken_between_words_and_can_be_pasted() -> None:
    profile = sample_profile.h200_decoder()
    quoted = "'" + "two words " * 15 + "'"
    profile.deeper = [f"rocprofv3 --kernel-trace -d {'/very/long' * 6} -o trace -- python bench.py --note {quoted}"]
    lines = _section(profile, "For a closer look")
    assert len(lines) > 1 and all(line.endswith(" \\") for line in lines[:-1])
    assert " ".join(line.removesuffix(" \\").strip() for line in lines) == one_line(profile.deeper[0])
    assert any(quoted.replace("  ", " ") in line for line in lines), "a quoted word is not broken"


def test_numbers_beyond_all_bounds_do_not_break_the_table() -> None:
    profile = sample_profile.nothing_seen()
    profile.kernels = [KernelRow(name="k", category="gemm", calls=1e300, time_us=1e300, share=1e300, mean_us=1e300)]
    profile.categories = [CategoryShare(category="gemm", time_us=-1e300, share=-4.0)]
    assert max(map(width_of, text.render(profile).splitlines())) <= 100


@pytest.mark.parametrize(
    ("name", "columns", "short"),
    [
        ("Memcpy DtoD (Device -> Device)", 40, "Memcpy DtoD (Device -> Device)"),
        ("void at::native::reduce_kernel<512, 1>(int, float*)", 40, "reduce_kernel<512, 1>"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 9>(float*)", 30, "softmax_warp_forward<float, 9>"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", 30, "Cijk_Alik_Bljk_BBS_B…56x256x64"),
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", 30, "vectorized_elementwise_kernel…"),
        ("漢字の名前" * 9, 11, "漢字の…名前"),
        ("(((", 20, "((("),
        ("\x1b\x00", 20, "(no name)"),
        ("(" * 10_000_000 + ")", 30, "(" * 20 + "…" + "(" * 9),  # in no time
    ],
)
def test_a_name_is_cut_where_it_says_least(name: str, columns: int, short: str) -> None:
    assert text.short_name(name, columns) == short
    assert width_of(text.short_name(name, columns)) <= columns


def test_a_time_has_the_unit_that_suits_it() -> None:
    said = {0.0: "0.00 µs", 45.12: "45.1 µs", 999.0: "999 µs", 1420.0: "1.42 ms", 2.5e6: "2.50 s", float("inf"): "–"}
    assert {us: text.time(us) for us in said} == said and text.time(None) == text.time(float("nan")) == "–"


def _section(profile: Profile, title: str, most_kernels: int = 15) -> list[str]:
    shown = text.render(profile, most_kernels=most_kernels)
    found = next(part for part in shown.split("\n\n") if part.startswith(title))
    return shown.split("\n\n")[shown.split("\n\n").index(found) + 1].splitlines()
