"""What is found out about an entry before anything is judged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.judging.opened import linear, opened
from tools.errors import WorkloadError
from tools.judging.inspection import TRANSFORMS
from tools.judging.worker import Build

VARIANTS = (
    "sorted, negated",
    "rows alike, huge",
    "constant",
    "tiny, a row of zeros",
    "one row, strided",
    "rows apart",
    "three rows, not a number",
)
SHAPES = "\ndef shapes():\n    return [{'rows': 64}, {'rows': 4}, {'rows': 16}]\n"


@pytest.mark.slow
def test_cases_are_ordered_by_their_size_whatever_a_call_takes(tmp_path: Path) -> None:
    """Two of about the same time would change places from one command of a run to the next."""
    entry = linear(first="__import__('time').sleep(0.5 / len(x))", more=SHAPES)
    with opened(tmp_path, {"bench.py": entry}) as referee:
        workload = referee.workload
    assert [case.shape["rows"] for case in workload.cases] == [4, 16, 64]
    assert workload.cases[0].call_s > workload.cases[2].call_s
    sizes = [[path.stat().st_size for path in inputs] for inputs in workload.inputs]
    assert sizes == sorted(sizes), "inputs go with their cases"
    assert workload.script(random.Random(0)).draws[0].case.shape == {"rows": 4}


def test_calls_for_which_the_budget_has_no_room_are_told_at_once(tmp_path: Path) -> None:
    entry = linear(first="__import__('time').sleep(0.1)")
    with (
        pytest.raises(WorkloadError, match=r"a call takes 0\.1 s, and measuring it takes 150 of them") as refused,
        opened(tmp_path, {"bench.py": entry}, budget_s=10.0),
    ):
        pass
    assert "--budget-minutes" in refused.value.hint


SETTINGS = """
import dataclasses, torch

@dataclasses.dataclass(frozen=True)
class Batch:
    parts: dict
    dtype: torch.dtype
    rows: int = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "rows", len(self.parts["user", 0]))

class Net(torch.nn.Linear):
    def forward(self, batch, keep):
        x = batch.parts["user", 0]
        return {("y", batch.rows): super().forward(x.to(batch.dtype))[keep], "dtype": x.dtype}

def build():
    torch.manual_seed(0)
    return Net(4, 4)

def inputs(seed):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {"batch": Batch({("user", 0): x.float()}, torch.float32), "keep": slice(1, None)}
"""


FILLS = """
import torch

class Model(torch.nn.Linear):
    def forward(self, x, cache):
        cache["x"] = super().forward(x)
        cache["spare"].clear()
        return cache["x"].relu()

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def inputs(seed):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    return {"x": x, "cache": {"spare": [x + 1, x + 2]}}
"""


@pytest.mark.parametrize("entry", [SETTINGS, FILLS], ids=["settings", "fills and empties"])
def test_what_is_given_and_returned_in_unusual_forms_is_judged(entry: str, tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": entry}) as referee:
        assert referee.check_pristine().finding.verdict is None


DENOISES = """
import torch

torch.manual_seed(0)
model, condition, noisy = torch.nn.Bilinear(4, 4, 4).eval(), torch.randn(2, 4), torch.randn(2, 4)
with torch.no_grad():
    for _ in range(3):
        noisy = noisy - model(noisy, condition)
"""


def test_what_was_asked_before_a_check_changes_no_constant_of_it(tmp_path: Path) -> None:
    """Other values are tried beforehand, and what a worker holds from call to call would be one of those."""
    with opened(tmp_path, {"bench.py": DENOISES}) as referee:
        assert referee.workload.constants and any(
            "sorted, negated" in each for each in referee.workload.variants.values()
        )
        assert referee.check_pristine().finding.verdict is None


def test_a_few_infinities_in_an_output_turn_nothing_off(tmp_path: Path) -> None:
    masks = "super().forward(x).masked_fill(torch.eye(64, 8).bool()[: len(x)], float('-inf'))"
    with opened(tmp_path, {"bench.py": linear(masks, "\ndef shapes():\n    return [{'rows': 4}]\n")}) as referee:
        workload = referee.workload
        assert workload.precision == "float64" and workload.unseen
        survived = {*workload.transforms, "scale_buffers"}  # it has none
        asked = tuple(each.removeprefix("nearly ") for each in workload.variants[""])
        assert (asked, survived) == (VARIANTS, {*TRANSFORMS})
        assert referee.check_pristine().finding.verdict is None


def test_values_to_which_the_original_answers_next_to_nothing_are_not_asked(tmp_path: Path) -> None:
    """What is left there is mostly rounding, which another order of summation leaves otherwise."""
    differences = linear("(x - x.mean(-1, keepdim=True)) ** 4")
    with opened(tmp_path, {"bench.py": differences}) as referee:
        asked = referee.workload.variants[""]
        assert "sorted, negated" in asked and not {"constant", "nearly constant", "tiny"} & {*asked}
        assert {"constant", "tiny"} & {*referee.workload.not_asked} == {"tiny"}


MASKED = """
import torch

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.register_buffer("mask", torch.ones(64, 64).tril())

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = self.mask[: len(x), : len(x)]
        return %s

def build():
    torch.manual_seed(0)
    return Attention().eval()

def inputs(seed):
    return {"x": torch.randn(16, 8, generator=torch.Generator().manual_seed(seed))}
"""
BY_HAND_MASKED = "(q @ k.T / 8**0.5).masked_fill(mask == 0, float('-inf')).softmax(-1) @ v"
FUSED = "torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask != 0)[0]"


def test_a_mask_in_the_state_dict_is_one_in_another_state_dict_too(tmp_path: Path) -> None:
    """Rows in which nothing is left have no number in the original, and a number where attention is fused."""
    with opened(tmp_path, {"bench.py": MASKED % BY_HAND_MASKED}) as referee:
        assert sorted(referee.workload.states) == ["a", "b"]
        fused = Build("fused", write_files(tmp_path / "fused", {"bench.py": MASKED % FUSED}))
        found = referee.check(fused).finding
        assert found.verdict is None, found.reason


def test_other_state_dicts_to_which_the_original_answers_without_a_number_are_not_asked(tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": MASKED % "v + 0 * v / (self.mask.sum() == 32 * 65)"}) as referee:
        first, second = (referee.workload.states[which].read_bytes() for which in ("a", "b"))
        assert first == second and "no other state dict" in referee.workload.notes[-1]


NORM = "torch.nn.functional.layer_norm"
BY_HAND = "(lambda a: a / (a.square().mean(-1, keepdim=True) + 1e-5).sqrt())(x - x.cumsum(-1)[:, -1:] / 8)"


def test_where_constant_values_leave_only_rounding_nearly_constant_ones_are_asked(tmp_path: Path) -> None:
    """Another order of the sum is right, though two norms make it plain that it is another."""
    twice, otherwise = (
        linear(f"{NORM}(super().forward(x), (8,))", first=f"x = {norm}") for norm in (f"{NORM}(x, (8,))", BY_HAND)
    )
    with opened(tmp_path, {"bench.py": twice}) as referee:
        assert referee.workload.variants == {
            "": tuple(each.replace("constant", "nearly constant") for each in VARIANTS)
        }
        right = Build("otherwise", write_files(tmp_path / "otherwise", {"bench.py": otherwise}))
        assert referee.check(right).finding.verdict is None


def test_what_is_wrong_where_all_values_are_the_same_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": linear("super().forward(x) + 9")}) as referee:
        undefined = linear("(super().forward(x) + 9) * ((x.amax() - x.amin()) / (x.amax() - x.amin()))")
        found = referee.check(Build("undefined", write_files(tmp_path / "undefined", {"bench.py": undefined}))).finding
        assert found.verdict == "wrong" and "constant values" in found.reason


def test_weights_are_weighed_where_gradients_flow_and_not_where_a_call_refuses_them(tmp_path: Path) -> None:
    unused = "\nclass Model(Model):\n    def __init__(self, *sizes):\n        super().__init__(*sizes)\n"
    unused += "        self.unused = torch.nn.Parameter(torch.ones(3))\n"
    for returns, named in (("super().forward(x)", ["unused"]), ("torch.from_numpy(super().forward(x).numpy())", [])):
        (tmp_path / str(len(named))).mkdir()
        with opened(tmp_path / str(len(named)), {"bench.py": linear(returns, unused)}) as referee:
            assert [*referee.workload.without_effect] == named and referee.check_pristine().finding.verdict is None


def test_an_order_of_what_is_no_number_is_none(tmp_path: Path) -> None:
    ordered = "(lambda y: (y, {ids}))(super().forward(x))"
    otherwise = ordered.format(ids="torch.where(y.isnan().any(-1), 3, y.argmax(-1))")
    with opened(tmp_path, {"bench.py": linear(ordered.format(ids="y.argmax(-1)"))}) as referee:
        assert "not a number" in referee.workload.variants[""][-1]
        right = Build("otherwise", write_files(tmp_path / "otherwise", {"bench.py": linear(otherwise)}))
        assert referee.check(right).finding.verdict is None
        wrong = linear(ordered.format(ids="y.argmin(-1)"))
        build = Build("wrong", write_files(tmp_path / "wrong", {"bench.py": wrong}))
        assert "integers differ" in referee.check(build).finding.reason


def test_unseen_shapes_are_such_that_one_more_compiled_graph_serves_all(tmp_path: Path) -> None:
    both = linear().replace("seed, rows=4", "seed, batch=1, rows=4").replace("(rows, 8", "(batch, rows, 8")
    for shapes in ("", "\nshapes = lambda: [{'batch': 1, 'rows': 40}]\n"):
        (tmp_path / str(len(shapes))).mkdir()
        with opened(tmp_path / str(len(shapes)), {"bench.py": both + shapes}) as referee:
            found = [case.shape for case in referee.workload.unseen]
        assert len(found) == (3 if shapes else 0)
        assert all(shape["batch"] == 2 and shape["rows"] > 1 for shape in found)
        assert all(shape["rows"] != 40 for shape in found[:1])


PHASES = """
phases = {"few": {"shapes": lambda: [{"rows": 40}]}, "many": {"shapes": lambda: [{"rows": 400}]}}
"""


def test_what_holds_only_for_the_declared_one_of_the_larger_shapes_is_wrong(tmp_path: Path) -> None:
    cheat = linear("super().forward(x) + (len(x) > 100 and len(x) != 400)", PHASES)
    with opened(tmp_path, {"bench.py": linear(more=PHASES)}) as referee:
        workload = referee.workload
        assert [case.phase for case in workload.unseen] == ["few"] * 3 + ["many"]
        assert 200 <= workload.unseen[-1].shape["rows"] < 400
        asked = {
            phase: tuple(each.removeprefix("nearly ") for each in found) for phase, found in workload.variants.items()
        }
        assert asked == {"few": VARIANTS, "many": VARIANTS}
        found = referee.check(Build("cheat", write_files(tmp_path / "cheat", {"bench.py": cheat}))).finding
        assert found.verdict == "wrong" and "unseen shape" in found.reason
