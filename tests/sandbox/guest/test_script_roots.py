"""By which method a script enters a module: what is judged is that call, where it can be, or those below it."""

from __future__ import annotations

import pytest
import torch

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
    assert played.told["notes"] == [] and played.told["recipe"]["called"] == [":guided"]
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
    assert told["notes"] == [f"{why}: the calls below it are judged"]
    assert told["recipe"]["methods"] == [] and {"1x4", "1x5", "1x6"} <= {case["phase"] for case in told["cases"]}


def test_forward_called_directly_is_a_call(play: Play) -> None:
    played = play("net = Net().eval()\nwith torch.no_grad():\n    for _ in range(3):\n        net.forward(torch.randn(2, 4))\n")
    model, given, out = played.replayed()
    assert given["0.0"] == ":forward" and torch.equal(out, model(given["0.0.0"]))


def test_plain_compiling_reaches_the_method_that_is_called(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(GUIDED)
    compiled: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: compiled.append(function.__name__) or function)
    played.worker.op_build(recipe=played.told["recipe"], compile_options={"backend": "eager"})
    assert compiled == ["guided"]
