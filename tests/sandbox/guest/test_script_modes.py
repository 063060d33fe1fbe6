"""In which modes a script makes its calls: training, gradients, autocast."""

from __future__ import annotations

import pytest
import torch

from tests.sandbox.guest.conftest import Play

LEARNING = """
model = nn.Sequential(Net(), nn.BatchNorm1d(4))%s
model.append(nn.BatchNorm1d(4))
with torch.set_grad_enabled(%s):
    for _ in range(3):
        model(torch.randn(2, 4))
"""


@pytest.mark.parametrize(
    ("evaluated", "grad", "said", "learns"),
    [
        (".eval()", False, "", True),
        (".eval()", True, "calls with gradients, but", True),
        ("", True, "calls in training mode and with gradients, but", False),
    ],
)
def test_parts_learn_as_the_script_leaves_them_and_calls_that_are_made_in_another_mode_are_told(
    evaluated: str, grad: bool, said: str, learns: bool, play: Play
) -> None:
    played = play(LEARNING % (evaluated, grad))
    assert [note for note in played.told["notes"] if "eval mode" in note and said in note] == played.told["notes"][1:]
    assert len(played.told["notes"]) == 1 + bool(said)
    model = played.build()
    assert [part.training for part in (model, *model)] == [False, False, False, learns]


AUTOCAST = """
model = Net().eval()
with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=%s):
    for _ in range(3):
        model(torch.randn(2, 4))
with torch.no_grad():
    %s
"""


@pytest.mark.parametrize("enabled", [False, True])
def test_calls_are_made_under_the_autocast_of_the_script_and_in_a_wider_type_under_none(
    enabled: bool, play: Play
) -> None:
    played = play(AUTOCAST % (enabled, "pass"))
    assert played.told["recipe"]["autocast"] == ({"cpu": "bfloat16"} if enabled else {})
    _, _, out = played.replayed()
    assert out.dtype == (torch.bfloat16 if enabled else torch.float32) and not torch.is_autocast_enabled("cpu")
    played.reference.op_build(recipe=played.told["recipe"])
    played.reference.op_precision("float64")
    played.reference.op_stage(str(played.folder / "input-1"), phase=played.label)
    played.reference.op_call(key=1)
    assert [each.dtype for each in played.reference.result[1]] == [torch.float64]
    played.reference.op_build()
    assert not played.reference.workload.is_wide, "built again, it is in its own type"


def test_calls_under_more_than_one_autocast_are_told(play: Play) -> None:
    notes = play(AUTOCAST % (True, "model(torch.randn(2, 4))")).told["notes"]
    assert len(notes) == 2 and "under more than one autocast" in notes[1]
