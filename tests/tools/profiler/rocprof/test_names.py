"""The same kernel is found under another spelling, and another kernel never."""

from __future__ import annotations

import time

import pytest

from tools.profiler.rocprof.names import match, parse

FULL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"  # noqa: E501


@pytest.mark.parametrize(
    "other",
    [
        FULL,
        f"{FULL} [clone .kd]",
        f"{FULL} (.kd)",
        f"{FULL}.kd",
        FULL.replace("> >", ">>"),
        FULL.replace(", ", ","),
        FULL.removeprefix("void "),
        FULL[: FULL.rindex("(")],
        "at::native::vectorized_elementwise_kernel",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_.kd",
    ],
)
def test_spellings_of_one_kernel_match(other: str) -> None:
    assert match([FULL], [other, "copy_kernel"]).found == {FULL: other}
    assert match([other], [FULL, "copy_kernel"]).found == {other: FULL}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("f<int>(int)", "f<float>(int)"),
        ("f<int>(int)", "f<int>(float)"),
        ("ns::f", "f"),
        ("f", "f2"),
        ("A<int>::run(int)", "A<float>::run(int)"),
        ("A<int>::run(int)", "A<int>::stop(int)"),
        ("A<int>::run(int)", "A"),
        ("unsigned_long", "unsigned long"),
        ("_ZN5aiter4fmhaE", "_ZN5aiter4softE"),
        ("", "f"),
    ],
)
def test_other_kernels_do_not(ours: str, theirs: str) -> None:
    found = match([ours], [theirs])
    assert found.found == {} and found.missing == [ours]


@pytest.mark.parametrize(
    ("ours", "theirs", "found", "ambiguous"),
    [
        (["f<int>(int)"], ["f<int>", "f"], {}, ["f<int>(int)"]),
        (["f<int>", "f<float>"], ["f"], {}, ["f<int>", "f<float>"]),
        (["void f<int>", "f< int >"], ["f<int>.kd"], {}, ["void f<int>", "f< int >"]),
        (["f<int>", "f"], ["f", "f<int>"], {"f": "f", "f<int>": "f<int>"}, []),  # equal names win
        (["f<int>", "f<float>"], ["f<int>", "f<double>"], {"f<int>": "f<int>"}, []),  # what is left over is no match
        (["f<int>", "f<float>"], ["f<int>", "_Z1fIdEvT_"], {"f<int>": "f<int>"}, ["f<float>"]),
    ],
)
def test_ambiguous_names_are_told(
    ours: list[str], theirs: list[str], found: dict[str, str], ambiguous: list[str]
) -> None:
    matched = match(ours, theirs)
    assert (matched.found, matched.ambiguous) == (found, ambiguous)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("_ZN5aiter24fmha_fwd_hd128_bf16_rtneE", "aiter::fmha_fwd_hd128_bf16_rtne"),
        ("_Z6kernelPfi", "kernel"),
        ("_ZN12_GLOBAL__N_16kernelEv", "'anonymous'::kernel"),
        ("(anonymous namespace)::kernel(int)", "'anonymous'::kernel"),
        ("void f((lambda at x.cu:3))", "f"),
        ("f(std::vector<int>)", "f"),
        ("_Z", "_Z"),
        ("_Z9999x", "_Z9999x"),
        ("_ZN0E", "_ZN0E"),
        ("triton_poi_fused_0", "triton_poi_fused_0"),
        ("<", "<"),
        ("f<((<", "f"),
        (" \t ", ""),
    ],
)
def test_the_plain_name_is_found_and_nonsense_is_its_own(name: str, base: str) -> None:
    assert parse(name).base == base


def test_names_without_end_take_no_time() -> None:
    names = ["<", "(", " ", "[clone ", " [clone x]", ".kd", "{lambda(", "_Z1a", "{lambda()#1}", "'", "<int> "]
    long = [(name * 2000)[:1999] + end for name in names for end in ("", "x", ")", "]")]
    start = time.process_time()
    for name in [*long, "{lambda(" * 180 + "int" + ")#2}" * 180]:
        parse(name)
    assert (time.process_time() - start) / len(long) < 0.02


@pytest.mark.parametrize(
    ("gnu", "llvm"),
    [
        ("f<g()::{lambda(int)#1}>(int)", "f<g()::'lambda'(int)>(int)"),
        ("f<g()::{lambda(int)#2}>", "f<g()::'lambda0'(int)>"),
        (
            "void k<at::h(T&)::{lambda()#1}::operator()() const::{lambda(float, float)#3}>(int)",
            "void k<at::h(T&)::'lambda'()::operator()() const::'lambda1'(float, float)>(int)",
        ),
        ("f<{lambda({lambda(int)#1})#1}>", "f<'lambda'('lambda'(int))>"),
        ("f<{unnamed type#1}>", "f<'unnamed'>"),
    ],
)
def test_lambdas_match_in_the_spelling_of_both_demanglers(gnu: str, llvm: str) -> None:
    assert match([gnu], [llvm]).found == {gnu: llvm}
    assert match([gnu.replace("#1", "#9").replace("#2", "#9")], [llvm]).found == {}
