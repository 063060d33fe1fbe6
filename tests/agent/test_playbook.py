"""The playbook turns what was seen into candidates that apply, and says in one line why there are none."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agent.proposers import PastAttempt, Platform, ProposalRequest
from agent.proposers.in_turn import InTurn
from agent.proposers.playbook import Playbook
from agent.step_names import STEPS
from tests.agent.proposed import CPU, GPU, ROCM, applied, attempt, copy_of, of_key, request
from tests.observed import Target, same_results
from tools.candidate import Candidate, Key, Role
from tools.observation import HostRead, Observation, Ops, OpShare

WANTED = {
    "audit_compute": [
        "Build cos, sin and mask of Attention once",
        "Multiply with the key and value heads of Attention without repeating them",
    ],
    "fuse_projections": [
        "Run gate_proj and up_proj of MLP as one matrix multiplication",
        "Run q_proj, k_proj and v_proj of Attention as one matrix multiplication",
    ],
    "swap_attention": [
        "Fused attention in Attention, key and value heads repeated",
        "Fused attention in Attention, key and value heads shared by several query heads",
    ],
    "compile_model": ["Compile Decoder (default settings)"],
}


@pytest.mark.parametrize("step", list(WANTED))
def test_the_decoder_gets_the_candidates_a_person_would_try(decoder: tuple[Target, Observation], step: str) -> None:
    candidates, reason = Playbook().propose(request(decoder[0], step, decoder[1]))
    assert sorted(c.title for c in candidates) == WANTED[step] and reason == ""
    assert all(c.step == step and c.origin == "playbook" and "model.py" in c.rationale for c in candidates)


@pytest.mark.parametrize("step", [s for s in WANTED if s != "compile_model"])
def test_each_candidate_applies_and_computes_the_same(decoder: tuple[Target, Observation], step: str) -> None:
    target, seen = decoder
    for index, candidate in enumerate(Playbook().propose(request(target, step, seen))[0]):
        after = applied(Target(target.tree), candidate)
        shapes = ({"batch": 1, "tokens": 32}, {"batch": 2, "tokens": 7}, {"batch": 1, "tokens": 1})
        assert same_results(target, after, *shapes), (index, candidate.title)
        shutil.rmtree(after.tree)


@pytest.mark.parametrize(
    ("task", "step", "title"),
    [
        ("padded_encoder", "audit_compute", "Leave out padding before SentenceEncoder computes anything"),
        ("moe_layer", "fuse_projections", "Run the experts of MixtureOfExperts together"),
    ],
)
def test_tasks_get_the_candidate_that_they_are_there_for(tmp_path: Path, task: str, step: str, title: str) -> None:
    target = copy_of(tmp_path, task)
    candidates, _ = Playbook().propose(request(target, step, target.observe()))
    assert candidates[0].title == title and "model.py" in candidates[0].diff
    assert same_results(target, applied(target, candidates[0]))


def test_the_whole_playbook_stacks_up(tmp_path: Path) -> None:
    before = target = copy_of(tmp_path, "decoder")
    for step in ("audit_compute", "fuse_projections", "swap_attention"):
        while candidates := Playbook().propose(request(target, step, target.observe({"batch": 1, "tokens": 16})))[0]:
            target = applied(target, candidates[0])
    text = target.text().partition("class Attention")[2]
    assert "repeat_kv(" not in text and "softmax" not in text and " rotary_tables(seq_len" not in text
    assert text.count("= PackedLinear(") == 2 and "enable_gqa=True" in text
    assert same_results(
        before, target, {"batch": 1, "tokens": 16}, {"batch": 3, "tokens": 5}, {"batch": 1, "tokens": 1}
    )


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_candidates_or_one_line_that_says_why_not(tmp_path: Path, step: str) -> None:
    target = copy_of(tmp_path, "optimal")
    candidates, reason = Playbook().propose(request(target, step, target.observe()))
    assert bool(candidates) != bool(reason) and "\n" not in reason
    assert bool(candidates) == (step == "compile_model")


def test_a_step_does_not_propose_again_what_it_tried(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    first = Playbook().propose(request(target, "fuse_projections", seen))[0]
    rest = Playbook().propose(request(target, "fuse_projections", seen, attempts=(attempt(first[0], "neutral"),)))[0]
    assert [c.title for c in rest] == [first[1].title]


def test_what_failed_together_is_tried_one_by_one(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    together = Playbook().propose(request(target, "audit_compute", seen))[0][0]
    tried = (attempt(together, "wrong"),)
    titles = [c.title for c in Playbook().propose(request(target, "audit_compute", seen, attempts=tried))[0]]
    assert "Build cos, sin of Attention once" in titles and "Build mask of Attention once" in titles
    refused = Playbook().propose(request(target, "audit_compute", seen, attempts=(attempt(together, "refused"),)))[0]
    assert not any(c.title.startswith("Build") for c in refused)


def test_the_last_step_tries_neutral_ones_again_alone_and_together(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    packs = Playbook().propose(request(target, "fuse_projections", seen))[0]
    past = tuple(attempt(c, "neutral") for c in packs)
    again = Playbook().propose(request(target, "compose_stack", seen, attempts=past))[0]
    assert len(again) == 3 and "all layers" in again[0].title
    assert all(c.step == "compose_stack" for c in again)
    assert same_results(target, applied(target, again[0]), {"batch": 1, "tokens": 8})
    wrong = tuple(attempt(c, "wrong") for c in packs)
    assert Playbook().propose(request(target, "compose_stack", seen, attempts=wrong))[0] == []


def test_what_was_judged_on_this_very_stack_leaves_the_turn_to_others(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    fused = Playbook().propose(request(target, "swap_attention", seen))[0]
    asked = request(target, "compose_stack", seen, attempts=tuple(attempt(c, "neutral") for c in fused))
    assert InTurn([Playbook(), Always(fused[:1])]).propose(asked)[0] != fused[:1]
    here = replace(asked, judged_here={candidate.digest for candidate in fused})
    assert InTurn([Playbook(), Always(fused[:1])]).propose(here)[0] == fused[:1]
    assert Playbook().propose(here) == ([], "everything that was found has been tried")


class Always(Playbook):
    def __init__(self, candidates: list[Candidate]) -> None:
        self.candidates = candidates

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        return self.candidates, ""


def test_a_protected_entry_is_never_changed(tmp_path: Path) -> None:
    target = copy_of(tmp_path, "kb_mlp")
    entry = target.text("bench.py") + (
        "\n\ndef build():\n    return Model(*get_init_inputs()).eval()\n\n"
        "def inputs(seed):\n    torch.manual_seed(seed)\n    return tuple(get_inputs())\n"
    )
    declared = Target.write(tmp_path / "declared", {"bench.py": entry})
    seen = declared.observe()
    for step in STEPS:
        candidates, reason = Playbook().propose(request(declared, step, seen))
        assert not candidates and reason
    assert Playbook().advice(request(declared, "compile_model", seen))
    open_entry = Playbook().propose(request(declared, "fuse_projections", seen, protected=False))[0]
    assert [c.title for c in open_entry] == ["Run gate and up of Model as one matrix multiplication"]


def test_platforms_get_what_they_can_use(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    propose = Playbook().propose

    def titles(step: str, platform: Platform, cases: int = 1) -> list[str]:
        return [c.title for c in propose(request(target, step, seen, platform, cases=cases))[0]]

    assert titles("write_kernels", CPU) == [] and len(titles("write_kernels", GPU)) == 4
    assert titles("capture_graph", CPU) == [] and titles("capture_graph", GPU)
    assert titles("route_gemm", CPU) == titles("route_gemm", GPU) == []
    assert len(titles("route_gemm", ROCM)) == 3
    convolutions = Ops(rows=[OpShare(name="aten::convolution", share=0.5, count=2)], other=0.5)
    seen = seen.model_copy(update={"ops": convolutions})
    assert titles("route_gemm", CPU) == []
    assert titles("route_gemm", GPU) == ["Let cuDNN measure its kernels for each convolution"]
    assert len(titles("compile_model", GPU, cases=3)) == 2
    rocm = propose(request(target, "compile_model", seen, ROCM))[0][0]
    assert '"max_autotune": False' in rocm.diff
    assert propose(request(target, "compile_model", seen, Platform(device="cpu", cpp_compiler=False)))[1]


@pytest.mark.slow
def test_where_recorded_calls_pay_compiling_and_recording_are_one_change(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    asked = replace(request(target, "compile_model", seen, GPU, cases=3), recording_pays=True)
    first, *others = Playbook().propose(asked)[0]
    assert first.title == "Compile Decoder (one graph for each shape) and record its calls as graphs"
    assert "self.compile(dynamic=False)" in first.diff and "+@graphed" in first.diff
    assert [c.title for c in others] == [
        "Compile Decoder (one graph for each shape)",
        "Compile Decoder (default settings)",
    ]
    assert same_results(target, applied(target, first), {"batch": 1, "tokens": 8})
    after = applied(target, first)
    again = replace(asked, base=after.tree, tree=after.tree, step="capture_graph")
    assert Playbook().propose(again) == ([], "Capture whole calls of Decoder as graphs: Decoder is captured already")
    read = seen.model_copy(update={"host_reads": [HostRead.model_construct(frames=[])]})
    reads = [replace(asked, observation=read, compile_breaks=breaks) for breaks in (None, 1, 0)]
    assert ["record" in Playbook().propose(each)[0][0].title for each in reads] == [False, False, True]
    assert "reads values" in Playbook().propose(replace(reads[2], step="capture_graph"))[1], "eager, it still would"
    assert Playbook().propose(replace(again, observation=read)) == Playbook().propose(again), "it is captured"
    assert "record" not in Playbook().propose(replace(asked, platform=CPU))[0][0].title


COPIED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[:] = torch.relu(x.clone())
        return y * 2
"""


def with_shares(seen: Observation, *tables: str, share: float) -> Observation:
    rows = {name: [row.model_copy(update={"share": share}) for row in getattr(seen, name)] for name in tables}
    return seen.model_copy(update=rows)


def test_what_noise_would_hide_is_timed_once_and_together(tmp_path: Path) -> None:
    target = Target.of_model(tmp_path / "tree", COPIED)
    seen = with_shares(target.observe(), "copies", "zeros", share=0.008)
    asked = request(target, "audit_compute", seen)
    assert [c.key.rewriter for c in Playbook().propose(asked)[0]] == ["copies", "zeros"], "no floor is known"
    assert [c.key.rewriter for c in Playbook().propose(replace(asked, floor=0.016))[0]] == ["copies", "zeros"]
    (small,) = Playbook().propose(replace(asked, floor=0.02))[0]
    assert small.key == Key("together", "audit_compute", "") and "clone" not in applied(target, small).text()
    assert "empty_like" in applied(target, small).text() and same_results(target, applied(target, small))
    tried = replace(asked, floor=0.02, attempts=(attempt(small, "neutral"),))
    assert Playbook().propose(tried)[0] == Playbook().propose(replace(tried, step="compose_stack"))[0] == []
    found, why = Playbook().propose(replace(asked, floor=0.04))
    assert found == [] and "under half of the noise floor" in why


def test_small_kernels_of_one_file_are_one_change(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    seen = with_shares(seen, "norms", "add_norms", "rotary", "gated", share=0.005)
    (small,) = Playbook().propose(replace(request(target, "write_kernels", seen, GPU), floor=0.02))[0]
    text = applied(target, small).text()
    for name in ("rms_norm", "add_rms_norm", "rotary", "gated_mul"):
        assert text.count(f"import {name}\n") == 1 and text.count(f"{name}(") > 0
    assert same_results(target, applied(target, small), {"batch": 1, "tokens": 8})


@pytest.mark.parametrize(("share", "found"), [(0.5, True), (0.004, False)])
def test_weights_become_constants_only_where_products_take_long(tmp_path: Path, share: float, found: bool) -> None:
    target = copy_of(tmp_path, "optimal")
    products = Ops(rows=[OpShare(name="aten::addmm", share=share, count=2)], other=1.0 - share)
    seen = target.observe().model_copy(update={"ops": products})
    compiled = applied(target, Playbook().propose(request(target, "compile_model", seen))[0][0])
    asked = replace(request(compiled, "compile_model", seen), floor=0.02)
    assert any("as constants" in c.title for c in Playbook().propose(asked)[0]) is found


FUSED_CALL = "F.scaled_dot_product_attention(x, x, x)"
FUSED = """
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)
"""


def test_fused_attention_is_routed_on_a_gpu_where_it_takes_a_tenth_of_a_call(tmp_path: Path) -> None:
    target = Target.of_model(tmp_path / "tree", FUSED, inputs="(torch.randn(2, 4, 6, 16),)")
    found = target.observe()

    def titles(platform: Platform, share: float) -> list[str]:
        attention = [row.model_copy(update={"share": share}) for row in found.attention]
        seen = found.model_copy(update={"attention": attention})
        return [c.title for c in Playbook().propose(request(target, "swap_attention", seen, platform))[0]]

    where = f"`return {FUSED_CALL}` of model.py"
    assert titles(GPU, 0.2) == [f"Attend in {where} with the kernel that is measured to be the fastest"]
    assert titles(GPU, 0.05) == titles(CPU, 0.2) == []


@pytest.mark.slow
def test_on_a_gpu_much_waits_for_torch_compile_where_it_pays(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder

    def keys(step: str, *attempts: PastAttempt, pays: bool = True, platform: Platform = GPU) -> list[tuple[Key, Role]]:
        asked = replace(request(target, step, seen, platform, attempts), compile_pays=pays)
        return [(c.key, c.role) for c in Playbook().propose(asked)[0]]

    def early(step: str) -> list[tuple[Key, Role]]:
        return keys(step, pays=False)

    constants, heads = early("audit_compute")
    assert keys("audit_compute") == [constants]
    assert keys("fuse_projections") == early("fuse_projections") == keys("fuse_projections", platform=CPU)
    tried = of_key("compile_model", Key("compile_model", "model.py:Decoder"), "neutral")
    assert keys("fuse_projections", tried) == keys("write_kernels") == []
    assert keys("route_gemm", platform=ROCM) == [] != keys("route_gemm", pays=False, platform=ROCM)
    past = of_key("audit_compute", constants[0], "kept")
    together, *others = keys("compose_stack", past)
    assert together == (Key("projections", "model.py", "all"), "first")
    waited = [*early("fuse_projections"), heads, *early("write_kernels")]
    assert others == [(key, "again") for key, _ in waited]
    tried_then = [of_key("compose_stack", key, "neutral", role) for key, role in (together, *others[:2])]
    assert keys("compose_stack", past, *tried_then) == others[2:]
    assert keys("compose_stack", past, pays=False) == keys("compose_stack", past, platform=CPU) == []
    asked = replace(request(target, "compose_stack", seen, GPU), compile_pays=True, steps=("compile_model",))
    assert Playbook().propose(asked)[0] == [], "steps that were left out are not made up for"


def test_what_torch_compile_merges_is_timed_with_it_where_it_is_to_come(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder

    def timed_with(step: str, *attempts: PastAttempt, pays: bool = True, platform: Platform = GPU) -> list[str]:
        asked = replace(request(target, step, seen, platform, attempts), compile_pays=pays)
        return [c.timed_with for c in Playbook().propose(asked)[0]]

    for step in ("audit_compute", "fuse_projections", "swap_attention"):
        assert {*timed_with(step)} == {"compile_model"}
        assert {*timed_with(step, platform=CPU)} == {*timed_with(step, pays=False)} == {""}
    assert len(timed_with("swap_attention")) == 1 < len(timed_with("swap_attention", pays=False))
    tried = of_key("compile_model", Key("compile_model", "model.py:Decoder"), "kept")
    assert "compile_model" not in timed_with("swap_attention", tried)
    assert {*timed_with("compose_stack")} == {""}


def test_sites_name_classes_lines_and_shares(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    sites = Playbook().sites(request(target, "locate_layers", seen))
    kinds = {site.kind for site in sites}
    assert kinds == {
        "constants",
        "repeat_kv",
        "projections",
        "attention",
        "rms_norm",
        "gated_activation",
        "add_rms",
        "rotary",
    }
    assert all(site.file == "model.py" and site.line > 0 and 0 <= (site.share or 0) <= 1 for site in sites)
    assert [s.share for s in sites] == sorted((s.share for s in sites), key=lambda s: -(s or 0))
