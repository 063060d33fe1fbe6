"""By which method a script enters a module: what is judged is that call, where it can be, or those below it."""

from __future__ import annotations

import pytest
import torch

from tests import guest
from tests.sandbox.guest.conftest import Play

GUIDED = """
class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Linear(8, 8), nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x, scale=1.0):
        return self.blocks(self.embed(x)) * scale

    def guided(self, x, scale):
        one, other = self.forward(torch.cat([x, x])).chunk(2)
        return other + scale * (one - other)

def sample(step, x):
    for _ in range(3):
        x = x - step(x, scale=4.0)
    return x

model = Denoiser().eval()
with torch.no_grad():
    for _ in range(2):
        sample(model.guided, torch.randn(2, 8))
"""
BELOW = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)

    def forward(self, tokens):
        return self.out(self.embed(tokens).mean(1))

    @torch.no_grad()
    def generate(self, tokens, count):
        for _ in range(count):
            tokens = torch.cat([tokens, self.choose(self(tokens))], 1)
        return tokens

    def choose(self, logits):
        return %s

model = Model().eval()
for _ in range(2):
    model.generate(torch.randint(50, (1, 4)), 3)
"""


def test_a_method_that_is_handed_on_bound_is_judged_with_all_that_is_in_it(play: Play) -> None:
    played = play(GUIDED)
    assert played.told["notes"] == ["judged is Denoiser.guided: 100% of the script's time in modules"]
    assert played.told["recipe"]["called"] == [":guided"]
    model, given, out = played.replayed()
    assert type(model).__name__ == "Denoiser" and given["0.0"] == ":guided" and given["0.0.scale"] == 4.0
    assert torch.equal(out, model.guided(given["0.0.0"], 4.0))
    assert "guided" not in vars(model) and type(model).guided.__name__ == "guided"


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ("logits.argmax(-1, keepdim=True)", "Model.generate returns no floating-point numbers"),
        ("torch.multinomial(logits.softmax(-1), 1)", "Model.generate draws random numbers"),
    ],
)
def test_a_loop_whose_result_cannot_be_compared_is_judged_by_the_calls_below_it(
    choice: str, why: str, play: Play
) -> None:
    told = play(BELOW % choice).told
    assert told["notes"][1:] == [f"{why}: the calls below it are judged"]
    assert told["recipe"]["methods"] == [] and {"1x4", "1x5", "1x6"} <= {case["phase"] for case in told["cases"]}


def test_forward_called_directly_is_a_call(play: Play) -> None:
    played = play("net = Net().eval()\nwith torch.no_grad():\n    net.forward(torch.randn(2, 4))\n")
    model, given, out = played.replayed()
    assert given["0.0"] == ":forward" and torch.equal(out, model(given["0.0.0"]))


def test_plain_compiling_reaches_the_method_that_is_called(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(GUIDED)
    compiled: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: compiled.append(function.__name__) or function)
    played.worker.op_build(recipe=played.told["recipe"], compile_options={"backend": "eager"})
    assert compiled == ["guided"]


PARTS = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(8, 8)

    def forward(self, x, cache):
        keys = cache[self.key] if self.key in cache else self.key(x)
        return x + keys.mean(1, keepdim=True)

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), Layer()

model = Whole().eval()

def hook(cache, module, args, out):
    cache[module] = torch.cat([cache[module], out], 1) if module in cache else out

def transcribe(x):
    cache = {}
    filling = model.decoder.key.register_forward_hook(lambda *given: hook(cache, *given))
    encoded = model.encoder(x)
    for _ in range(3):
        encoded = model.decoder(encoded, cache)
    filling.remove()

with torch.no_grad():
    for _ in range(2):
        transcribe(torch.randn(2, 5, 8))
"""
IN_BUFFERS = """
class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(1, 16, 8), persistent=False)

    def forward(self, x, at):
        self.seen[:, at] = self.layer(x)
        return self.seen[:, : int(at[-1]) + 1].sum(1)

model = Cached().eval()
with torch.no_grad():
    for _ in range(2):
        model(torch.randn(1, 4, 8), torch.arange(4))
        for step in range(4, 7):
            model(torch.randn(1, 1, 8), torch.tensor([step]))
"""


def test_parts_that_a_script_calls_are_judged_together_with_a_cache_that_hooks_fill(play: Play) -> None:
    played = play(PARTS)
    (note,) = played.told["notes"]
    assert note == "judged is Layer, Linear: 100% of the script's time in modules"
    model, given, out = played.replayed()
    assert [given[f"0.{step}"] for step in range(4)] == ["Linear", "Layer", "Layer", "Layer"]
    encoded = model.Linear(given["0.0.0"])
    keys = torch.nn.functional.linear(encoded, model.Layer.key.weight, model.Layer.key.bias)
    assert torch.allclose(out[1], encoded + keys.mean(1, keepdim=True), atol=1e-6)
    again = played.call(1)[1]
    assert len(out) == 4 and all(torch.equal(one, other) for one, other in zip(out, again, strict=True))


def test_a_state_that_lies_in_buffers_alone_is_handed_on_and_begins_again(play: Play) -> None:
    played = play(IN_BUFFERS)
    assert played.label == "1x4x8, 4, 4 steps" and played.told["recipe"]["buffers"] == ["seen"]
    model, given, out = played.replayed()
    rows = torch.cat([given[f"0.{step}.0"] for step in range(4)], 1)
    assert torch.allclose(out[3], model.layer(rows).sum(1), atol=1e-5)
    played.worker.op_transform("deepcopy")
    model.seen.fill_(7.0)
    assert all(torch.equal(one, other) for one, other in zip(out, played.call(1)[1], strict=True))
    played.worker.built.seen.fill_(7.0)
    assert all(torch.equal(one, other) for one, other in zip(out, played.call(1)[1], strict=True))


MANY = """
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        time.sleep(0.01)
        return self.layer(x)

import time
with torch.no_grad():
    for number in range(%d):
        model = %s
        for _ in range(2):
            model(torch.randn(2, 8))
"""


def test_of_many_models_of_one_class_one_is_judged(play: Play) -> None:
    told = play(MANY % (3, "Plain().eval()")).told
    assert told["notes"] == ["judged is Plain: 100% of the script's time in modules"]
    assert list(told["recipe"]["roots"]) == ["Plain"]


def test_more_models_than_can_be_judged_are_refused_with_what_to_declare(play: Play) -> None:
    other = 'type(f"Other{number}", (Plain,), {})().eval()'
    told = play(MANY % (10, other)).told
    assert len(told["recipe"]["roots"]) == 6 and " and 2 more: " in told["notes"][0]
    with pytest.raises(guest.module("workload").WorkloadProblem, match="the script calls 20 classes of modules"):
        play(MANY % (20, other))
