"""The playbook turns what was seen into candidates that apply, and says in one line why there are none."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agent.proposers import InTurn, Platform, ProposalRequest
from agent.proposers.playbook import Playbook
from agent.step_names import STEPS
from tests import guest
from tests.agent.proposed import CPU, GPU, ROCM, applied, attempt, copy_of, of_key, propose, request
from tests.observed import Target, same_results
from tools.candidate import Candidate, Key
from tools.observation import HostRead, Observation, OpShare

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
Decoder = tuple[Target, Observation]


def titles(*arguments: Any, **more: Any) -> list[str]:
    return [candidate.title for candidate in propose(*arguments, **more)[0]]


@pytest.mark.parametrize("step", list(WANTED))
def test_the_decoder_gets_what_a_person_would_try_and_computes_the_same(decoder: Decoder, step: str) -> None:
    target, seen = decoder
    candidates, reason = propose(target, step, seen)
    assert sorted(c.title for c in candidates) == WANTED[step] and reason == ""
    assert all(c.step == step and c.origin == "playbook" and "model.py" in c.rationale for c in candidates)
    for candidate in candidates if step != "compile_model" else ():
        after = applied(target, candidate)
        shapes = ({"batch": 1, "tokens": 32}, {"batch": 2, "tokens": 7}, {"batch": 1, "tokens": 1})
        assert same_results(target, after, *shapes), candidate.title
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
    candidates, _ = propose(target, step, target.observe())
    assert candidates[0].title == title and "model.py" in candidates[0].diff
    assert same_results(target, applied(target, candidates[0]))


@pytest.mark.slow
def test_the_whole_playbook_stacks_up(tmp_path: Path) -> None:
    before = target = copy_of(tmp_path, "decoder")
    for step in ("audit_compute", "fuse_projections", "swap_attention"):
        while candidates := propose(target, step, target.observe({"batch": 1, "tokens": 16}))[0]:
            target = applied(target, candidates[0])
    text = target.text().partition("class Attention")[2]
    assert "repeat_kv(" not in text and "softmax" not in text and " rotary_tables(seq_len" not in text
    assert text.count("= PackedLinear(") == 2 and "enable_gqa=True" in text
    shapes = ({"batch": 1, "tokens": 16}, {"batch": 3, "tokens": 5}, {"batch": 1, "tokens": 1})
    assert same_results(before, target, *shapes)


def test_every_step_has_candidates_or_one_line_that_says_why_not(tmp_path: Path) -> None:
    target = copy_of(tmp_path, "optimal")
    seen = target.observe()
    for step in STEPS:
        candidates, reason = propose(target, step, seen)
        assert bool(candidates) != bool(reason) and "\n" not in reason
        assert bool(candidates) == (step == "compile_model")


def test_what_failed_together_is_tried_one_by_one(decoder: Decoder) -> None:
    target, seen = decoder
    together = propose(target, "audit_compute", seen)[0][0]
    alone = {"Build cos, sin of Attention once", "Build mask of Attention once"}
    assert alone < {*titles(target, "audit_compute", seen, attempts=(attempt(together, "wrong"),))}
    refused = titles(target, "audit_compute", seen, attempts=(attempt(together, "refused"),))
    assert not any(title.startswith("Build") for title in refused)


def test_the_last_step_tries_neutral_ones_again_alone_and_together(decoder: Decoder) -> None:
    target, seen = decoder
    packs = propose(target, "fuse_projections", seen)[0]
    again = propose(target, "compose_stack", seen, attempts=tuple(attempt(c, "neutral") for c in packs))[0]
    assert len(again) == 3 and "all layers" in again[0].title
    assert all(c.step == "compose_stack" for c in again)
    assert same_results(target, applied(target, again[0]), {"batch": 1, "tokens": 8})
    assert titles(target, "compose_stack", seen, attempts=tuple(attempt(c, "wrong") for c in packs)) == []


def test_layers_are_not_fused_in_compiled_code_where_they_are_called_one_by_one(decoder: Decoder) -> None:
    target, seen = decoder
    packs = propose(target, "fuse_projections", seen)[0]
    compiled = attempt(propose(target, "compile_model", seen)[0][0], "kept")
    tried = tuple(attempt(c, "neutral") for c in packs)
    assert titles(target, "compose_stack", seen, attempts=(*tried, compiled)) == []
    found, why = propose(target, "fuse_projections", seen, attempts=(replace(compiled, stacked=True),))
    assert found == [] and "compiled code" in why


class Always(Playbook):
    def __init__(self, candidates: list[Candidate]) -> None:
        self.candidates = candidates

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        return self.candidates, ""


def test_what_was_judged_on_this_very_stack_leaves_the_turn_to_others(decoder: Decoder) -> None:
    target, seen = decoder
    fused = propose(target, "swap_attention", seen)[0]
    asked = request(target, "compose_stack", seen, attempts=tuple(attempt(c, "neutral") for c in fused))
    assert InTurn([Playbook(), Always(fused[:1])]).propose(asked)[0] != fused[:1]
    here = replace(asked, judged_here={candidate.digest for candidate in fused})
    assert InTurn([Playbook(), Always(fused[:1])]).propose(here)[0] == fused[:1]
    assert Playbook().propose(here) == ([], "everything that was found has been tried")


def test_a_protected_entry_is_never_changed(tmp_path: Path) -> None:
    build = "\n\ndef build():\n    return Model(*get_init_inputs()).eval()\n\n"
    inputs = "def inputs(seed):\n    torch.manual_seed(seed)\n    return tuple(get_inputs())\n"
    entry = copy_of(tmp_path, "kb_mlp").text("bench.py") + build + inputs
    declared = Target.write(tmp_path / "declared", {"bench.py": entry})
    seen = declared.observe()
    for step in STEPS:
        candidates, reason = propose(declared, step, seen)
        assert not candidates and reason
    assert Playbook().advice(request(declared, "compile_model", seen))
    found = titles(declared, "fuse_projections", seen, protected=False)
    assert found == ["Run gate and up of Model as one matrix multiplication"]


def test_platforms_get_what_they_can_use(decoder: Decoder) -> None:
    target, seen = decoder
    assert titles(target, "write_kernels", seen, CPU) == [] and len(titles(target, "write_kernels", seen, GPU)) == 4
    assert titles(target, "capture_graph", seen, CPU) == [] and titles(target, "capture_graph", seen, GPU)
    assert titles(target, "route_gemm", seen, CPU) == titles(target, "route_gemm", seen, GPU) == []
    assert len(titles(target, "route_gemm", seen, ROCM)) == 3
    with_convolutions = seen.model_copy(update={"ops": [OpShare(name="conv2d", share=0.5, count=2)]})
    assert titles(target, "route_gemm", with_convolutions, CPU) == []
    searched = titles(target, "route_gemm", with_convolutions, GPU)
    assert searched == ["Let cuDNN measure its kernels for each convolution"]
    assert len(titles(target, "compile_model", seen, GPU, cases=3)) == 2
    assert '"max_autotune": False' in propose(target, "compile_model", seen, ROCM)[0][0].diff
    assert propose(target, "compile_model", seen, Platform(device="cpu", cpp_compiler=False))[1]


@pytest.mark.slow
def test_where_recorded_calls_pay_compiling_and_recording_are_one_change(decoder: Decoder) -> None:
    target, seen = decoder
    asked = replace(request(target, "compile_model", seen, GPU, cases=3), recording_pays=True)
    first, *others = Playbook().propose(asked)[0]
    assert first.title == "Compile Decoder (one graph for each shape) and record its calls as graphs"
    assert "self.compile(dynamic=False)" in first.diff and "+@graphed" in first.diff
    kinds = ("one graph for each shape", "default settings")
    assert [c.title for c in others] == [f"Compile Decoder ({kind})" for kind in kinds]
    after = applied(target, first)
    assert same_results(target, after, {"batch": 1, "tokens": 8})
    again = replace(asked, base=after.tree, tree=after.tree, step="capture_graph")
    assert Playbook().propose(again) == ([], "Capture whole calls of Decoder as graphs: Decoder is captured already")
    read = seen.model_copy(update={"host_reads": [HostRead.model_construct(frames=[])]})
    reads = [replace(asked, observation=read, compile_breaks=breaks) for breaks in (None, 1, 0)]
    assert ["record" in Playbook().propose(each)[0][0].title for each in reads] == [False, False, True]
    assert "reads values" in Playbook().propose(replace(reads[2], step="capture_graph"))[1], "eager, it still would"
    assert Playbook().propose(replace(again, observation=read)) == Playbook().propose(again), "it is captured"
    assert "record" not in Playbook().propose(replace(asked, platform=CPU))[0][0].title


HOST_MADE = """
def near(n: int, table):
    between = torch.arange(n)[:, None] - torch.arange(n)[None, :] + n
    return table[between]
"""


def test_what_goes_to_a_device_in_each_call_is_built_once_and_the_call_recorded_on_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_host = guest.module("observe_reads").on_host
    monkeypatch.setattr(guest.module("observe_reads"), "on_host", lambda tensor: tensor.dtype is torch.int64)
    init = "self.table = nn.Parameter(torch.randn(16, 16))"
    target = Target.of_forward(tmp_path / "t", "return x + near(x.shape[1], self.table).sum(0)", init, before=HOST_MADE)
    seen = target.observe()
    found, why = propose(target, "capture_graph", seen, GPU)
    assert not found and "from the host to the device during the call (model.py:" in why
    (built,) = propose(target, "audit_compute", seen, GPU)[0]
    assert built.title == "Build between of near once"
    assert built.enables == "capture_graph"
    for more in ({"platform": CPU}, {"attempts": (of_key("capture_graph", Key("capture", "model.py"), "broken"),)}):
        (by_itself,) = propose(target, "audit_compute", seen, **{"platform": GPU, **more})[0]
        assert by_itself.enables == ""
    unfixed = seen.host_copies[0].model_copy(update={"fixed": False})
    both = seen.model_copy(update={"host_copies": [*seen.host_copies, unfixed]})
    assert propose(target, "audit_compute", both, GPU)[0][0].enables == "", "that alone makes no recording possible"
    after = applied(target, built)
    monkeypatch.setattr(guest.module("observe_reads"), "on_host", on_host)
    assert same_results(target, after)
    assert propose(after, "capture_graph", after.observe(), GPU)[0][0].key.rewriter == "capture"
    sent = [replace(request(target, "compile_model", seen, GPU), recording_pays=True, compile_breaks=n) for n in (1, 0)]
    assert ["record" in Playbook().propose(each)[0][0].title for each in sent] == [False, True], "compiled, none goes"


# -- what is too small


def with_shares(seen: Observation, *tables: str, share: float) -> Observation:
    rows = {name: [row.model_copy(update={"share": share}) for row in getattr(seen, name)] for name in tables}
    return seen.model_copy(update=rows)


def test_what_noise_would_hide_is_timed_once_and_together(tmp_path: Path) -> None:
    target = Target.of_forward(tmp_path / "tree", "y = torch.zeros_like(x)\ny[:] = torch.relu(x.clone())\nreturn y * 2")
    seen = with_shares(target.observe(), "copies", "zeros", share=0.0125)
    for floor in (0.0, 0.008):  # 0 where it is not known
        found = propose(target, "audit_compute", seen, floor=floor)[0]
        assert [c.key.rewriter for c in found] == ["copies", "zeros"]
    (small,) = propose(target, "audit_compute", seen, floor=0.01)[0]
    assert small.key == Key("together", "audit_compute", "") and "clone" not in applied(target, small).text()
    assert "empty_like" in applied(target, small).text() and same_results(target, applied(target, small))
    for step in ("audit_compute", "compose_stack"):
        assert titles(target, step, seen, attempts=(attempt(small, "neutral"),), floor=0.01) == []
    found, why = propose(target, "audit_compute", seen, floor=0.02)
    assert found == [] and "under the noise floor" in why


def test_small_kernels_of_one_file_are_one_change(decoder: Decoder) -> None:
    target, seen = decoder
    seen = with_shares(seen, "norms", "add_norms", "rotary", "gated", share=0.005)
    (small,) = propose(target, "write_kernels", seen, GPU, floor=0.01)[0]
    text = applied(target, small).text()
    for name in ("rms_norm", "add_rms_norm", "rotary", "gated_mul"):
        assert text.count(f"import {name}\n") == 1 and text.count(f"{name}(") > 0
    assert same_results(target, applied(target, small), {"batch": 1, "tokens": 8})


def test_fused_attention_is_routed_on_a_gpu_where_it_takes_a_tenth_of_a_call(tmp_path: Path) -> None:
    call = "return F.scaled_dot_product_attention(x, x, x)"
    target = Target.of_forward(tmp_path / "tree", call, inputs="(torch.randn(2, 4, 6, 16),)")
    seen = target.observe()
    large, small = (with_shares(seen, "attention", share=share) for share in (0.2, 0.05))
    wanted = f"Attend in `{call}` of model.py with the kernel that is measured to be the fastest"
    assert titles(target, "swap_attention", large, GPU) == [wanted]
    assert titles(target, "swap_attention", small, GPU) == titles(target, "swap_attention", large, CPU) == []


def test_sites_name_classes_lines_and_shares(decoder: Decoder) -> None:
    target, seen = decoder
    sites = Playbook().sites(request(target, "locate_layers", seen))
    wanted = "constants repeat_kv projections attention rms_norm gated_activation add_rms rotary"
    assert {site.kind for site in sites} == {*wanted.split()}
    assert all(site.file == "model.py" and site.line > 0 and 0 <= (site.share or 0) <= 1 for site in sites)
    assert [s.share for s in sites] == sorted((s.share for s in sites), key=lambda s: -(s or 0))


# -- a key stands for one place, wherever its line has moved


def tried(asked: ProposalRequest, key: Key) -> ProposalRequest:
    return replace(asked, attempts=(of_key(asked.step, key, "neutral"),))


def keys(asked: ProposalRequest) -> list[Key]:
    return [candidate.key for candidate in Playbook().propose(asked)[0]]


def test_classes_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    target = Target.of_forward(
        tmp_path / "tree",
        "return self.two(self.one(x) + 1)",
        "self.one, self.two = one.Part(), two.Part()",
        before="import one\nimport two",
    )
    layers = "self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)"
    part = Target.of_forward(tmp_path / "part", "return self.q(x) * self.k(x)", layers).text()
    part = part.replace("class Model", "class Part")
    # the second one is not the same code at the same place
    target = target.with_files({"one.py": part, "two.py": part.replace("        return", "\n        return")})
    asked = request(target, "fuse_projections", target.observe())
    both = keys(asked)
    assert sorted(both) == [Key("projections", f"{name}.py:Part", "q,k") for name in ("one", "two")]
    assert keys(tried(asked, both[0])) == both[1:]


def test_a_line_that_has_moved_is_the_same_one(tmp_path: Path) -> None:
    target = Target.of_forward(tmp_path / "tree", "y = torch.zeros(2, 5, 16)\ny.copy_(x)\nreturn y * 2")
    (key,) = keys(request(target, "audit_compute", target.observe()))
    moved = target.with_files({"model.py": f"import re\n{target.text()}"})
    asked = request(moved, "audit_compute", moved.observe())
    assert keys(asked) == [key] and keys(tried(asked, key)) == []
