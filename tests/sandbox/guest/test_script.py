"""Any script is an entry: its calls are recorded, and made again with other tensors by a worker that runs it again."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from tests import guest
from tests.sandbox.guest.conftest import Play

LOOP = """
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10)
    model, x = Net().eval(), torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(parser.parse_args().calls):
            model(x)
    sys.finished = True

if __name__ == "__main__":
    main()
"""
STATE = """
cell = nn.GRUCell(8, 8)
with torch.%s():
    for _ in range(2):
        h = torch.zeros(3, 8)
        for _ in range(5):
            h = cell(torch.randn(3, 8), h)
"""
CACHE = """
class Cache:
    def __init__(self):
        self.seen = []

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, tokens, cache=None, scale=1.0):
        cache.seen.append(self.embed(tokens))
        return {"logits": self.out(torch.cat(cache.seen, 1).mean(1)) * scale, "cache": cache}

model = Decoder().eval()
with torch.no_grad():
    for _ in range(2):
        cache = Cache()
        out = model(torch.randint(50, (1, 6)), cache=cache, scale=2.0)
        for _ in range(3):
            out = model(out["logits"].argmax(-1, keepdim=True), cache=out["cache"])
"""
HANDED = """
class State:
    def __init__(self, value):
        self.value = value

class First(nn.Module):
    def forward(self, x):
        return State(x + 1)

class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(40)])

    def forward(self, x, state=None):
        return self.layers(x) + (0 if state is None else state.value)

first, second = First(), Second()
with torch.no_grad():
    for _ in range(20):
        second(torch.randn(64, 256), state=first(torch.ones(256)))
"""


def test_a_loop_in_main_is_one_case_and_a_worker_runs_no_further_than_the_first_call(play: Play) -> None:
    played = play(LOOP)
    assert sys.finished  # type: ignore[attr-defined]
    sys.finished = False  # type: ignore[attr-defined]
    told = played.told
    recipe = dict(roots={"Net": 0}, buffers=[], objects=[], cases=["2x4"], methods=[], called=[""], autocast={})
    assert (told["form"], played.label, told["recipe"]) == ("observed", "2x4", recipe)
    model = played.build()
    assert type(model).__name__ == "Net" and not sys.finished  # type: ignore[attr-defined]
    (first, out), (second, _) = played.call(1), played.call(2)
    assert torch.equal(out, model(first["0.0.0"]))
    assert not torch.equal(first["0.0.0"], second["0.0.0"]) and first["0.0.0"].shape == (2, 4)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_what_comes_out_of_one_call_and_goes_into_the_next_makes_them_one_case(mode: str, play: Play) -> None:
    played = play(STATE % mode)
    assert played.label == "3x8, 3x8, 5 steps"
    cell, given, out = played.replayed()
    state = given["0.0.1"]
    assert torch.equal(state, torch.zeros(3, 8))
    for index in range(5):
        state = cell(given[f"0.{index}.0"], state)
        assert torch.equal(out[index], state)


def test_a_cache_begins_again_with_every_replay(play: Play) -> None:
    played = play(CACHE)
    assert played.told["recipe"]["objects"] == [["0", "cache"]]
    model, given, out = played.replayed()
    assert played.label == "1x6, 4 steps"
    assert [set(step) for step in out] == [{"logits"}] * 4  # the cache shows in what comes out afterwards
    seen = [model.embed(given[f"0.{index}.0"]) for index in range(4)]
    assert torch.allclose(out[0]["logits"], model.out(seen[0].mean(1)) * 2.0)
    assert torch.allclose(out[3]["logits"], model.out(torch.cat(seen, 1).mean(1)))
    assert all(torch.equal(a["logits"], b["logits"]) for a, b in zip(out, played.call(1)[1], strict=True))


def test_what_stays_the_same_while_something_else_changes_is_constant(play: Play) -> None:
    played = play("""
class Denoise(Net):
    def forward(self, x, step, condition, mask):
        return self.layer(x + condition) * mask[:, None] + step

net, condition, mask, x = Denoise(), torch.randn(4, 4), torch.tensor([1, 1, 0, 1]), torch.randn(4, 4)
with torch.no_grad():
    for step in range(6):
        x = net(x, step, condition=condition, mask=mask) * 0.9
""")
    assert sorted(played.told["constants"]) == ["0.0.condition", "0.0.mask"]
    played.build()
    (first, _), (second, _) = played.call(1), played.call(2)
    assert first["0.0.condition"] is second["0.0.condition"]
    assert not torch.equal(first["0.0.0"], second["0.0.0"])
    assert first["0.0.mask"].tolist() == [1, 1, 0, 1]  # a mask stays one
    assert {played.call(seed)[0]["0.0.1"] for seed in range(12)} == set(range(6))


def test_of_several_modules_the_one_that_takes_most_of_the_time_is_judged(play: Play) -> None:
    played = play("""
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(512, 512), nn.Linear(512, 4)

    def forward(self, x, encoded=None):
        return self.head(torch.relu(self.encoder(x)) + encoded)

small, model = nn.Linear(2, 2), Both()
with torch.no_grad():
    for _ in range(5):
        small(torch.randn(1, 2))
        model(torch.randn(512, 512), encoded=model.encoder(torch.randn(512, 512)))
""")
    assert played.label == "512x512, 2 steps"
    model, given, out = played.replayed()
    assert given["0.0"] == "encoder" and given["0.1"] == ""
    assert torch.allclose(out[1], model(given["0.1.0"], encoded=model.encoder(given["0.0.0"])))


def test_a_call_is_timed_without_what_it_takes_to_watch_it(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """To replace a method of `torch.nn.Module` takes 0.2 ms, since each class below it forgets what it looked up."""
    plain, clock, watched = torch.nn.Module.__call__, time.perf_counter, []

    def read() -> float:
        watched.append(torch.nn.Module.__call__ is not plain)
        return clock()

    monkeypatch.setattr(time, "perf_counter", read)
    play("Net()(torch.ones(4))\n")
    assert watched and not any(watched)


def test_tensors_are_drawn_like_those_that_were_seen(play: Play) -> None:
    played = play("""
class Sum(nn.Module):
    def forward(self, tokens, positions, mask, picture, flags):
        return tokens + positions + mask.sum() + picture.mean() + flags

infinite = torch.full((4, 4), float("-inf")).triu(1)
with torch.no_grad():
    Sum()(torch.randint(10, 90, (4, 64)), torch.arange(64), infinite,
          (torch.rand(1, 3, 8, 8) * 5).to(memory_format=torch.channels_last), torch.rand(4, 64) > 0.5)
""")
    _, given, _ = played.replayed()
    tokens, positions, mask, picture, flags = (given[f"0.0.{index}"] for index in range(5))
    assert tokens.min() >= 10 and tokens.max() < 90 and tokens.unique().numel() > 20
    assert torch.equal(positions, torch.arange(64)) and torch.isinf(mask).sum() == 6
    assert 0 <= picture.min() < picture.max() <= 5 and picture.is_contiguous(memory_format=torch.channels_last)
    assert flags.dtype == torch.bool


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("print('nothing is called')\n", "unknown_form", "none of the names"),
        ("def build(): pass\n", "unknown_form", "it defines build, and calls no torch.nn.Module"),
        ("sys.exit(3)\n", "entry_exited", "sys.exit(3)"),
        ("sys.exit()\n", "exited_as_success", "sys.exit(None)"),
        ("Net()(torch.ones(4)).sum().backward()\n", "trains", "what a step of it computes has to be declared"),
        ("1 / 0\n", "entry_raised", "ZeroDivisionError"),
        ("Net()(torch.ones(3))\n", "entry_raised", "cannot be multiplied"),
        (HANDED, "bad_declaration", "only calls that are given objects which come out of other modules"),
        ("def f(:\n", "entry_raised", "SyntaxError"),
        *(
            (
                f"Net()(torch.randn(4, 4), pos=torch.eye(4).{make}())\n",
                "bad_declaration",
                f"it is given a torch.{layout} tensor, which cannot be drawn again; declare ",
            )
            for layout, make in (("sparse_coo", "to_sparse"), ("sparse_csr", "to_sparse_csr"))
        ),
    ],
)
def test_what_cannot_be_judged_is_said(play: Play, script: str, kind: str, words: str) -> None:
    with pytest.raises(guest.module("workload").WorkloadProblem) as problem:
        play(script)
    assert problem.value.kind == kind
    assert words in problem.value.message


TRAINS = """
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, tokens, weights, labels, smoothing=0.0):
        logits = self.out((self.embed(tokens) * weights["each"]).mean(1))
        return nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)

model, weights = Classifier(), {"each": torch.rand(6, 5, 1).bfloat16()}
model(torch.randint(40, (6, 5)), weights, torch.randint(3, (6,)), smoothing=0.1).backward()
"""


def test_a_script_that_trains_is_told_its_declared_form(play: Play, tmp_path: Path) -> None:
    """With what it leaves open filled in, it is a workload."""
    with pytest.raises(guest.module("workload").WorkloadProblem) as problem:
        play(TRAINS)
    form = textwrap.dedent(problem.value.message.partition("\n\n")[2])
    assert "# Classifier is the script's own" in form
    own = TRAINS.partition("model = ")[0]
    (tmp_path / "declared.py").write_text(
        f"from torch import nn\n{form.replace('Classifier(...)', 'Classifier()')}{own}"
    )
    declared = guest.module("forms").read(str(tmp_path), "declared.py")
    assert declared.mode == "training"
    given = declared.inputs("", {}, 7)
    assert [*given] == ["tokens", "weights", "labels", "smoothing"] and given["smoothing"] == 0.1
    assert given["tokens"].max() > 40 and given["weights"]["each"].dtype == torch.bfloat16
    loss = declared.build(None)(**given)
    loss.backward()
    assert loss > 0 and not torch.equal(declared.inputs("", {}, 8)["tokens"], given["tokens"])


@pytest.mark.parametrize(
    ("script", "label", "note"),
    [
        (HANDED + "    second(torch.randn(64, 256))\n", "64x256", "20 calls are left out"),
        (LOOP + "    open('/nowhere/results.json', 'w')\n", "2x4", "ended with an error after 10 calls"),
        (
            "m, x = nn.Linear(4, 4), torch.ones(2, 4)\nfor _ in range(40):\n    x = m(x)\n",
            "2x4, 24 steps",
            "of 40 calls that hand a state on, the first 24 are judged",
        ),
    ],
)
def test_what_of_a_script_is_not_judged_is_said(play: Play, script: str, label: str, note: str) -> None:
    played = play(script)
    assert played.label == label and any(note in each for each in played.told["notes"])


def test_a_script_that_compiles_its_model_is_judged_with_that_and_nothing_of_torch_stays_replaced(play: Play) -> None:
    before = torch.nn.Module.__call__, torch.autograd.backward
    model, given, out = play(LOOP.replace("Net().eval()", "torch.compile(Net().eval(), backend='eager')")).replayed()
    assert type(model).__name__ == "OptimizedModule"
    assert torch.allclose(out, model._orig_mod(given["0.0.0"]))
    assert (torch.nn.Module.__call__, torch.autograd.backward) == before


TRACED = "torch.jit.trace(Net().eval(), torch.randn(2, 4), check_trace=False)"


def test_a_traced_model_is_judged_by_its_calls(play: Play) -> None:
    model, _, out = play(LOOP.replace("Net().eval()", TRACED)).replayed()
    assert isinstance(model, torch.jit.ScriptModule) and out.shape == (2, 4)


THREADS = """
import threading, time

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Net()

    def forward(self, x):
        time.sleep(0.02)
        return self.inner(x)

model = Slow().eval()

def work():
    with torch.no_grad():
        for _ in range(5):
            model(torch.randn(2, 4))
            time.sleep(0.005)

threads = [threading.Thread(target=work) for _ in range(3)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # Python itself says nothing
def test_of_several_threads_the_calls_of_one_are_judged(play: Play) -> None:
    """Else what runs inside of a call of one would be taken for a call of another."""
    played = play(THREADS)
    assert played.label == "2x4" and type(played.build()).__name__ == "Slow"
    assert any("calls of other threads" in note for note in played.told["notes"])


def test_generate_is_a_prompt_and_the_tokens_after_it(play: Play) -> None:
    played = play("""
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(config).eval()
for _ in range(2):
    model.generate(torch.randint(64, (1, 8)), max_new_tokens=5, do_sample=False, pad_token_id=0)
""")
    model, given, first = played.replayed()
    assert played.label.endswith("5 steps") and type(model).__name__ == "LlamaForCausalLM"
    _, again = played.call(1)
    assert len(first) == 5 and all(torch.equal(a["logits"], b["logits"]) for a, b in zip(first, again, strict=True))
    tokens = torch.cat([value for name, value in given.items() if name.endswith(".input_ids")], 1)
    with torch.no_grad():
        whole = model(tokens).logits
    assert torch.allclose(first[4]["logits"][:, -1], whole[:, -1], atol=1e-5)
