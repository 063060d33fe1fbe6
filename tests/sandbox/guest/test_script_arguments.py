"""What a script gives its calls, and what it does with it between them: inference mode, writes, objects."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import guest
from tests.sandbox.guest import played as playing
from tests.sandbox.guest.played import Played

as_a_worker_runs = playing.as_a_worker_runs

NET = """
import dataclasses, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, pos=None):
        return self.layer(x) if pos is None else self.layer(x) + pos

"""


def of_net(folder: Path, script: str) -> Played:
    return Played(folder, NET + script)


def test_a_script_may_make_everything_in_inference_mode(tmp_path: Path) -> None:
    made = """
@torch.inference_mode()
def main():
    net = Net().eval()
    for _ in range(3):
        net(torch.randn(2, 4))

main()
"""
    played = of_net(tmp_path, made)
    model, given, out = played.replayed()
    assert torch.equal(out, model(given["0.0.0"])) and not given["0.0.0"].is_inference()
    played.reference.op_build(recipe=played.told["recipe"])
    played.reference.op_save_state(str(tmp_path / "state"))
    played.worker.op_load_state(str(tmp_path / "state"))  # written to where no inference mode is
    assert torch.equal(played.call(*played.labels, 1)[1], model(given["0.0.0"]))


def test_recurrent_weights_of_inference_mode_follow_another_state(tmp_path: Path) -> None:
    made = """
import torch
with torch.inference_mode():
    net = torch.nn.GRU(4, 4)
    net(torch.randn(3, 1, 4))
"""
    played = Played(tmp_path, made)
    model, _, before = played.replayed()
    guest.module("tensors").save(str(tmp_path / "state"), {k: v * 2 for k, v in model.state_dict().items()})
    played.worker.op_load_state(str(tmp_path / "state"))
    assert not torch.equal(before["0"], played.call(*played.labels, 1)[1]["0"])


def test_outputs_are_handed_on_in_inference_mode(tmp_path: Path) -> None:
    made = """
net = Net().eval()
with torch.inference_mode():
    x = torch.randn(2, 4)
    for _ in range(5):
        x = net(x)
"""
    played = of_net(tmp_path, made)
    assert played.labels == ["2x4, 5 steps"]
    model, given, out = played.replayed()
    state = given["0.0.0"]
    for index in range(5):
        state = model(state)
        assert torch.equal(out[index], state)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize(
    ("make", "write"),
    [
        ("torch.zeros(())", "pos += 1"),
        ("torch.randn(64, 4)", "pos.copy_(pos.roll(1))"),
        ("torch.randint(100, (64, 4))", "pos.copy_(pos.flip(0))"),
    ],
)
def test_what_is_written_to_between_calls_is_no_constant(tmp_path: Path, mode: str, make: str, write: str) -> None:
    script = (
        NET
        + f"""
net = Net().eval()
with torch.{mode}():
    pos, kept = {make}, torch.randn(4)
    for _ in range(6):
        net(torch.randn(64, 4), pos=pos)
        {{write}}
"""
    )
    written, left = (Played(tmp_path / name, script.format(write=w)) for name, w in [("a", write), ("b", "pass")])
    assert left.told["constants"] == ["0.0.pos"]
    assert written.told["constants"] == []


LOOP = """
net, pos = Net().eval(), torch.zeros(1)
with torch.no_grad():
    x = torch.randn(2, 4)
    for _ in range(4):
        %snet(x, pos=pos)
        pos += 1
"""


def test_every_position_of_a_loop_is_judged(tmp_path: Path) -> None:
    played = of_net(tmp_path, LOOP % "")
    played.build()
    assert {played.call(*played.labels, seed)[0]["0.0.pos"].item() for seed in range(4)} == set(range(4))


def test_a_sequence_is_given_what_the_script_wrote_between_its_calls(tmp_path: Path) -> None:
    _, given, _ = of_net(tmp_path, LOOP % "x = ").replayed()
    assert [given[f"0.{index}.pos"].item() for index in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_a_tensor_that_stays_as_it_is_is_drawn_once_for_all_steps(tmp_path: Path, mode: str) -> None:
    made = f"""
with torch.{mode}():
    net, pos, x = Net().eval(), torch.randn(4), torch.randn(2, 4)
    for _ in range(3):
        x = net(x, pos=pos)
"""
    _, given, _ = of_net(tmp_path, made).replayed()
    assert torch.equal(given["0.0.pos"], given["0.1.pos"]) and torch.equal(given["0.0.pos"], given["0.2.pos"])


OBJECTS = """
import dataclasses, torch

@dataclasses.dataclass%s
class Batch:
    x: torch.Tensor
    n: int = dataclasses.field(init=False, default=2)

    def __post_init__(self):
        object.__setattr__(self, "n", self.x.shape[0])

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, batch):
        return self.layer(batch.x) * batch.n

with torch.no_grad():
    Net()(Batch(torch.randn(5, 4)))
"""


@pytest.mark.parametrize("how", ["", "(frozen=True)", "(slots=True)", "(frozen=True, slots=True)"])
def test_a_dataclass_that_makes_a_field_itself_is_an_argument(tmp_path: Path, how: str) -> None:
    played = Played(tmp_path, OBJECTS % how)
    model, given, out = played.replayed()
    batch = given["0.0.0"]
    assert batch.n == 5 and torch.equal(out, model.layer(batch.x) * 5)
    assert not torch.equal(batch.x, played.call(*played.labels, 2)[0]["0.0.0"].x)


def test_what_a_dataclass_holds_beside_its_fields_is_drawn_too(tmp_path: Path) -> None:
    script = OBJECTS.replace('object.__setattr__(self, "n", self.x.shape[0])', "self.more = torch.randn(4)")
    played = Played(tmp_path, (script % "").replace("* batch.n", "* batch.more"))
    played.build()
    first, second = (played.call(played.labels[0], seed)[0]["0.0.0"].more for seed in (1, 2))
    assert first.shape == (4,) and not torch.equal(first, second)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_a_sparse_argument_is_refused_in_words_about_the_script(tmp_path: Path, layout: str) -> None:
    make = {"sparse_coo": "to_sparse", "sparse_csr": "to_sparse_csr"}[layout]
    with pytest.raises(guest.module("workload").WorkloadProblem) as problem:
        Played(tmp_path, NET + f"Net()(torch.randn(4, 4), pos=torch.eye(4).{make}())\n")
    assert problem.value.kind == "bad_declaration"
    assert problem.value.message.startswith(
        f"it is given a torch.{layout} tensor, which cannot be drawn again; declare "
    )


RESULT = """
import torch

class Out:
    def __init__(self, y, state):
        self.y, self.state, self.how = y, state, torch.relu

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return %s

with torch.no_grad():
    Net()(torch.randn(5, 4))
"""


@pytest.mark.parametrize(
    ("made", "keys"),
    [
        ("Out(self.layer(x), None)", ["y", "state"]),
        ("Out(self.layer(x), Out(x, None))", ["y"]),  # an object in it holds a state
        ("{0: self.layer(x), ('a', 'b'): x}", [0, ("a", "b")]),
        ("{'y': self.layer(x), 'state': Out(x, None)}", ["y"]),
        ("Out(1, 2)", []),
    ],
)
def test_of_an_object_that_is_the_result_the_attributes_count(tmp_path: Path, made: str, keys: list[object]) -> None:
    model, given, out = Played(tmp_path, RESULT % made).replayed()
    assert list(out) == keys
    if keys:
        assert torch.equal(out[keys[0]], model.layer(given["0.0.0"]))
