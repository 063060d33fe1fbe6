"""In which ways the playbook has the model compiled, when in none, and what of the audit makes recording possible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.proposers import Platform
from agent.proposers.playbook import Playbook
from tests.agent.proposed import CPU, GPU, applied, attempt, of_key, propose, request
from tests.observed import Target, same_results
from tools.candidate import Key
from tools.observation import Observation


def test_tuning_is_tried_only_where_it_pays_last_on_a_gpu_and_first_on_a_cpu(
    decoder: tuple[Target, Observation],
) -> None:
    target, seen = decoder

    def titles(platform: Platform, pays: bool) -> list[str]:
        asked = replace(request(target, "compile_model", seen, platform, cases=2), tuning_pays=pays)
        return [c.title for c in Playbook().propose(asked)[0]]

    assert titles(GPU, False) == titles(GPU, True)[:-1]
    assert titles(CPU, False) == titles(CPU, True)[1:]
    assert "products tuned" in titles(GPU, True)[-1] and "products tuned" in titles(CPU, True)[0]
    rocm = Platform(device="cuda", rocm=True)
    assert titles(rocm, True)[:-1] == titles(rocm, False) and all(
        "tuning off" in title for title in titles(rocm, False)
    )
    assert "products tuned" in titles(rocm, True)[-1]


def test_blocks_are_compiled_where_the_whole_was_not_kept(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    (whole,) = propose(target, "compile_model", seen)[0]
    past = (attempt(whole, "broken"),)
    (block,) = propose(target, "compile_model", seen, attempts=past)[0]
    assert block.title == "Compile each DecoderLayer by itself (default settings)"
    assert "self.compile()" in applied(target, block).text().partition("class DecoderLayer")[2].partition("class ")[0]
    past = (*past, attempt(block, "neutral"))
    assert not propose(target, "compile_model", seen, attempts=past)[0]


def test_what_compiles_itself_without_an_end_is_not_compiled_as_a_whole(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    asked = replace(request(target, "compile_model", seen), compile_endless=True)
    (block,) = Playbook().propose(asked)[0]
    assert block.title == "Compile each DecoderLayer by itself (default settings)"
    tried = replace(asked, attempts=(attempt(block, "neutral"),))
    assert Playbook().propose(tried) == ([], "compiling Decoder comes to no end, or begins again for each input")
    kept = replace(asked, attempts=(attempt(block, "kept"),))
    assert not any(each.title.startswith("Compile Decoder (") for each in Playbook().propose(kept)[0])
    mended = replace(asked, attempts=(of_key("audit_compute", Key("loops", "model.py"), "kept"),))
    assert Playbook().propose(mended)[0][0].title.startswith("Compile Decoder")


def test_where_compiling_for_minutes_lost_it_is_not_tried_in_another_way(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    asked = replace(request(target, "compile_model", seen), cases=[{}, {}])
    first, second = Playbook().propose(asked)[0]
    slow = replace(attempt(first, "slower"), first_call_s=300.0)
    assert Playbook().propose(replace(asked, attempts=(replace(slow, first_call_s=30.0),)))[0][0].title == second.title
    (block,) = Playbook().propose(replace(asked, attempts=(slow,)))[0]
    assert block.title.startswith("Compile each DecoderLayer by itself")
    tried = (slow, attempt(block, "neutral"))
    assert Playbook().propose(replace(asked, attempts=tried)) == ([], "compiling Decoder took 300 s, and lost")


def test_a_way_to_compile_that_was_passed_over_is_not_weighed_again(decoder: tuple[Target, Observation]) -> None:
    target, seen = decoder
    first, second = propose(target, "compile_model", seen, GPU, cases=3)[0]
    past = (attempt(first, "kept"), attempt(second, "neutral"))
    titles = [c.title for c in propose(target, "compose_stack", seen, GPU, past, cases=3)[0]]
    assert not any(title.startswith("Compile") for title in titles)
    past = (attempt(first, "neutral"), attempt(second, "neutral"))
    titles = [c.title for c in propose(target, "compose_stack", seen, GPU, past, cases=3)[0]]
    assert len([title for title in titles if title.startswith("Compile")]) == 2
    compiled = applied(target, first)
    after = replace(request(compiled, "compile_model", seen, GPU, past[:1], cases=3), tuning_pays=True)
    assert len(Playbook().propose(after)[0]) == 2
    after = replace(after, attempts=(attempt(first, "kept"),))
    (tuned,) = Playbook().propose(after)[0]
    assert "products tuned" in tuned.title, "one graph for all shapes is not faster than one for each"


# -- what keeps a call from being recorded is mended by the audit


DECIDES = """positions = torch.arange(x.shape[1], device=x.device)
mask = None if bool((positions.diff() == 1).all()) else positions > 0
x = self.layer(x + positions[:, None])
return x if mask is None else x * mask[:, None]"""


def test_what_python_waits_for_in_vain_is_decided_once_so_that_calls_can_be_recorded(tmp_path: Path) -> None:
    target = Target.of_forward(tmp_path / "tree", DECIDES)
    seen = target.observe()

    def titles(of: Target, step: str, observed: Observation) -> list[str]:
        return [each.title for each in propose(of, step, observed, GPU, recording_pays=True)[0]]

    title = "Decide mask and positions of Model once for each shape"
    assert titles(target, "capture_graph", seen) == []
    assert not any("record its calls" in each for each in titles(target, "compile_model", seen))
    found = propose(target, "audit_compute", seen, GPU)[0]
    after = applied(target, next(c for c in found if c.title == title))
    assert same_results(target, after)
    seen = after.observe()
    assert title not in titles(after, "audit_compute", seen)
    assert titles(after, "compile_model", seen)[0].endswith("and record its calls as graphs")
    assert titles(after, "capture_graph", seen) == ["Capture whole calls of Model as graphs"]
