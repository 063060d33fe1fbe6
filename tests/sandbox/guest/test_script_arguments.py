"""What a script gives its calls, and what it does with it between them: inference mode, writes, objects."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests import guest
from tests.sandbox.guest.conftest import Play

in_each_mode = pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])


def test_a_script_may_make_everything_in_inference_mode(play: Play, tmp_path: Path) -> None:
    played = play("""
@torch.inference_mode()
def main():
    net = Net().eval()
    for _ in range(3):
        net(torch.randn(2, 4))

main()
""")
    model, given, out = played.replayed()
    assert torch.equal(out, model(given["0.0.0"])) and not given["0.0.0"].is_inference()
    played.reference.op_build(recipe=played.told["recipe"])
    played.reference.op_save_state(str(tmp_path / "state"))
    played.worker.op_load_state(str(tmp_path / "state"))  # written to where no inference mode is
    assert torch.equal(played.call(1)[1], model(given["0.0.0"]))


def test_recurrent_weights_of_inference_mode_follow_another_state(play: Play, tmp_path: Path) -> None:
    played = play("with torch.inference_mode():\n    net = nn.GRU(4, 4)\n    net(torch.randn(3, 1, 4))\n")
    model, _, before = played.replayed()
    guest.module("tensors").save(str(tmp_path / "state"), {k: v * 2 for k, v in model.state_dict().items()})
    played.worker.op_load_state(str(tmp_path / "state"))
    assert not torch.equal(before["0"], played.call(1)[1]["0"])


@in_each_mode
@pytest.mark.parametrize(
    ("make", "write"),
    [
        ("torch.zeros(())", "pos += 1"),
        ("torch.randn(64, 4)", "pos.copy_(pos.roll(1))"),
        ("torch.randint(100, (64, 4))", "pos.copy_(pos.flip(0))"),
        ("torch.randn(64, 4)", "pos.data.mul_(2)"),
        ("torch.randn(64, 4)", "pos.numpy()[:] *= 2"),
    ],
)
def test_what_is_written_to_between_calls_is_no_constant(play: Play, mode: str, make: str, write: str) -> None:
    script = f"""
net = Net().eval()
with torch.{mode}():
    pos, kept = {make}, torch.randn(4)
    for _ in range(6):
        net(torch.randn(64, 4), pos=pos)
        """
    assert play(script + write).told["constants"] == []
    assert play(script + "pass").told["constants"] == ["0.0.pos"]


def test_what_is_written_to_after_many_calls_is_no_constant(play: Play) -> None:
    script = """
net, pos = Net().eval(), torch.randn(64, 4)
with torch.no_grad():
    for step in range(24):
        net(torch.randn(64, 4), pos=pos)
        if step == 16:
            """
    assert play(script + "pos += 1").told["constants"] == []
    assert play(script + "pass").told["constants"] == ["0.0.pos"]


LOOP = """
net, pos = Net().eval(), torch.zeros(1)
with torch.no_grad():
    x = torch.randn(2, 4)
    for _ in range(4):
        %snet(x, pos=pos)
        pos += 1
"""


def test_every_position_of_a_loop_is_judged_and_a_sequence_is_given_them_in_order(play: Play) -> None:
    played = play(LOOP % "")
    played.build()
    assert {played.call(seed)[0]["0.0.pos"].item() for seed in range(4)} == set(range(4))
    _, given, _ = play(LOOP % "x = ").replayed()
    assert [given[f"0.{index}.pos"].item() for index in range(4)] == [0, 1, 2, 3]


@in_each_mode
def test_a_tensor_that_stays_as_it_is_is_drawn_once_for_all_steps(play: Play, mode: str) -> None:
    _, given, _ = play(f"""
with torch.{mode}():
    net, pos, x = Net().eval(), torch.randn(4), torch.randn(2, 4)
    for _ in range(3):
        x = net(x, pos=pos)
""").replayed()
    assert torch.equal(given["0.0.pos"], given["0.1.pos"]) and torch.equal(given["0.0.pos"], given["0.2.pos"])


OBJECTS = """
@dataclasses.dataclass%s
class Batch:
    x: torch.Tensor
    n: int = dataclasses.field(init=False, default=2)

    def __post_init__(self):
        object.__setattr__(self, "n", self.x.shape[0])

class OfBatch(Net):
    def forward(self, batch):
        return self.layer(batch.x) * batch.n

with torch.no_grad():
    OfBatch()(Batch(torch.randn(5, 4)))
"""


@pytest.mark.parametrize("how", ["", "(frozen=True)", "(slots=True)", "(frozen=True, slots=True)"])
def test_a_dataclass_that_makes_a_field_itself_is_an_argument(play: Play, how: str) -> None:
    played = play(OBJECTS % how)
    model, given, out = played.replayed()
    batch = given["0.0.0"]
    assert batch.n == 5 and torch.equal(out, model.layer(batch.x) * 5)
    assert not torch.equal(batch.x, played.call(2)[0]["0.0.0"].x)


def test_what_a_dataclass_holds_beside_its_fields_is_drawn_too(play: Play) -> None:
    script = OBJECTS.replace('object.__setattr__(self, "n", self.x.shape[0])', "self.more = torch.randn(4)")
    played = play((script % "").replace("* batch.n", "* batch.more"))
    played.build()
    first, second = (played.call(seed)[0]["0.0.0"].more for seed in (1, 2))
    assert first.shape == (4,) and not torch.equal(first, second)


RESULT = """
class Out:
    def __init__(self, y, state):
        self.y, self.state, self.how = y, state, torch.relu

class Gives(Net):
    def forward(self, x):
        return %s

with torch.no_grad():
    Gives()(torch.randn(5, 4))
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
def test_of_an_object_that_is_the_result_the_attributes_count(play: Play, made: str, keys: list[object]) -> None:
    model, given, out = play(RESULT % made).replayed()
    assert list(out) == keys
    if keys:
        assert torch.equal(out[keys[0]], model.layer(given["0.0.0"]))


EMBEDDING = """
class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 4), nn.Embedding(64, 4)

    def forward(self, ids, at):
        return self.tokens(ids.view(-1)) + self.places(at)

net = Tokens().eval()
with torch.no_grad():
    for step in range(6):
        net(torch.full((1, %d), 7), torch.tensor([step]))
"""


@pytest.mark.parametrize("count", [1, 3])
def test_what_names_rows_of_an_embedding_is_drawn_from_all_of_them_and_positions_are_not(
    count: int, play: Play
) -> None:
    played = play(EMBEDDING % count)
    drawn = [played.reference.workload.inputs(played.label, {}, seed) for seed in range(60)]
    assert len({int(number) for given in drawn for number in given["0.0.0"].flatten()}) > 25
    assert {int(given["0.0.1"]) for given in drawn} == set(range(6))


def test_which_cases_are_judged_is_decided_once(play: Play) -> None:
    played = play(
        "net = Net().eval()\nwith torch.no_grad():\n    for n in range(1, 9):\n        net(torch.randn(n, 4))\n"
    )
    told = [each["phase"] for each in played.told["cases"]]
    other = guest.module("reference").Reference(str(played.folder), "bench.py")
    chosen = {**played.told["recipe"], "cases": told[:1]}
    assert 1 < len(told) <= 6
    assert [each["phase"] for each in other.op_describe(recipe=chosen)["cases"]] == told[:1]


def test_which_modules_are_judged_is_decided_once(play: Play) -> None:
    """By its own clock another process may find that one of two is enough, or that it is not."""
    played = play(
        "net, other = Net().eval(), torch.nn.Conv2d(1, 1, 3)\n"
        "with torch.no_grad():\n    for _ in range(3):\n"
        "        other(torch.randn(1, 1, 99, 99)), net(torch.randn(2, 4))\n"
    )
    for root, number, case in (("Conv2d", 0, "1x1x99x99"), ("Net", 1, "2x4")):
        chosen = {**played.told["recipe"], "roots": {root: number}, "cases": [case], "called": [""]}
        again = guest.module("reference").Reference(str(played.folder), "bench.py")
        assert [each["phase"] for each in again.op_describe(recipe=chosen)["cases"]] == [case]
        again.op_build(mode="inference")
        assert type(again.built).__name__ == root
    far = {**played.told["recipe"], "roots": {"Net": 99}}
    with pytest.raises(guest.module("workload").WorkloadProblem, match="does not get as far as its modules"):
        guest.module("reference").Reference(str(played.folder), "bench.py").op_describe(recipe=far)


def test_new_data_comes_into_the_same_memory_where_only_a_number_differs(play: Play) -> None:
    """Else a cache by address or version would never be caught in a script that hands over a position."""
    played = play(
        "net = Net().eval()\nwith torch.no_grad():\n    for n in range(6):\n        net(torch.randn(2, 4), float(n))\n"
    )
    played.build()
    seen = []
    for seed in range(6):
        path = str(played.folder / f"in-{seed}")
        played.reference.op_draw({path: seed}, phase=played.label)
        played.worker.op_stage(path, phase=played.label, how="inplace")
        given = dict(played.worker.arguments)
        seen.append((given["0.0.0"].data_ptr(), given["0.0.pos" if "0.0.pos" in given else "0.0.1"]))
    assert len({pointer for pointer, _ in seen}) == 1 and len({number for _, number in seen}) > 1
