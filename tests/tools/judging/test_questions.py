"""Questions about other types, constants and tokens, which a target of a few lines answers by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging.correctness import Finding
from tools.judging.script import SEEDS
from tools.judging.worker import Build

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(8) + 1)

    def forward(self, x, table=None):
        return {returns}

def build():
    torch.manual_seed(0)
    return Model().eval()

def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return {{"x": torch.randn(4, 8, generator=generator){more}}}
"""
TABLE = ', "table": torch.rand(8, generator=generator)}\n\ndef constants():\n    return ["table"]\n\nNOTHING = {'
KEPT = '(x * self.__dict__.setdefault("kept", table * 2)) * self.scale'
KEYED = (
    '(x * (self.__dict__["kept"] if self.__dict__.get("of") is table and not table.requires_grad else '
    'self.__dict__.update(kept=table * 2, of=table) or self.__dict__["kept"])) * self.scale'
)
MASK = ', "table": torch.ones(4, 8, dtype=torch.bool)'
BY_PLACES = "torch.stack([(row * self.scale)[m.bool()].mean() for row, m in zip(x, table)])"
BY_ENDS = BY_PLACES.replace("[m.bool()]", "[m.nonzero()[0, 0] : m.nonzero()[-1, 0] + 1]")
WIDTH = ', "table": 0.77'
PACKED = "(torch.as_strided(x, x.shape, (x.shape[-1], 1), x.storage_offset()) if x.stride(-1) == 1 else x)"
LABELS = ', "table": torch.randint(8, (4,), generator=generator)'
LOSS = "torch.nn.functional.cross_entropy(x * self.scale, table)"
NO_LABEL_LEFT_OUT = "-(x * self.scale).log_softmax(-1).gather(1, table.clamp(min=0)[:, None]).mean()"
NO_GRADIENTS = "torch.no_grad()(torch.mul)(x, self.scale)"
LARGEST = "torch.return_types.max(((x * self.scale).amax(1){}, (x * self.scale).argmax(1)))"
BAKED = "x * self.__dict__.setdefault('kept', self.scale * 2)"
TOLERANT = '}\n\ndef tolerance():\n    return {"rtol": 1e-3}\n\nNOTHING = {'
NEAR_TIES = "torch.linspace(1, 1.000001, 64)"  # of scores, which rounding decides where they are huge
WEIGHTS = "torch.linspace(0, 1, 64)[:, None]"  # of a type of their own, so that there is no truth
TIED = f"torch.softmax(x @ (self.scale[:, None] * {NEAR_TIES}), -1) @ {WEIGHTS} + torch.tanh(x * self.scale)"
TURNED = TIED.replace("x @", "x.flip(1) @").replace("self.scale[:", "self.scale.flip(0)[:")
NO_MAXIMUM = TIED.replace("torch.softmax(", "(lambda e, _: e / e.sum(-1, keepdim=True))((").replace(
    "), -1)", ")).exp(), -1)"
)
RARELY = "(x * self.scale).abs().argmax() + ((x[0, 0] * 1e4).to(torch.int64) % 25 == 0).to(torch.int64)"


def judged(folder: Path, original: str, change: str, more: str = "", **settings: int) -> tuple[Finding, int]:
    """The finding, and how many inputs were asked of it."""
    entry, changed = (MODEL.format(returns=returns, more=more) for returns in (original, change))
    with opened(folder, {"bench.py": entry}, **settings) as referee:
        found = referee.check(Build("changed", write_files(folder / "changed", {"bench.py": changed}))).finding
        return found, referee.workload.seeds


@pytest.mark.parametrize(
    ("original", "change", "more", "says"),
    [
        ("torch.tanh(x) * 2", "(torch.tanh(x.float()) * 2)", "", "another type values: output 0 has dtype float32"),
        ("torch.tanh(x) * 2", "2 * torch.tanh(x)", "", ""),
        ("x @ self.scale", "x.float() @ self.scale", "", "it answers, where the original raises RuntimeError"),
        ("x @ self.scale", "(self.scale @ x.t())", "", ""),
        ("(x * (table * 2)) * self.scale", KEPT, TABLE, "other constants"),
        ("(x * (table * 2)) * self.scale", KEYED, TABLE, ""),
        (BY_PLACES, BY_ENDS, MASK, "with holes"),
        (TIED, TURNED, "", ""),
        (TIED, NO_MAXIMUM, "", "huge, roughly values: output 0: NaN"),
        (TIED, f"({TURNED}) * (1 + 0.2 * (x.abs().amax() > 1000))", "", "huge, roughly values: output 0: a row is off"),
        (BY_PLACES, BY_PLACES.replace("row * self.scale", "self.scale * row"), MASK, ""),
        (
            "x * self.scale * table",
            "x * self.scale * self.__dict__.setdefault(int(table * 10), table)",
            WIDTH,
            "nearly the same numbers",
        ),
        ("x * self.scale * table", "table * x * self.scale", WIDTH, ""),
        ("x * 2 * self.scale", f"{PACKED} * 2 * self.scale", "", "rows apart"),
        (LOSS, NO_LABEL_LEFT_OUT, LABELS, "minus a hundred"),
        (LOSS, LOSS.replace("x * self.scale", "self.scale * x"), LABELS, ""),
        (
            "x * self.scale if x.isfinite().all() else int('x')",
            "x * self.scale",
            "",
            "where the original raises ValueErr",
        ),
        (NO_GRADIENTS, "x * self.scale", "", "gradients: gradient 0: not zero"),
        (NO_GRADIENTS, NO_GRADIENTS.replace("x, self.scale", "self.scale, x"), "", ""),
        ("(x * self.scale).max(1)", LARGEST.format(" * 2"), "", "first call"),
        ("(x * self.scale).max(1)", LARGEST.format(""), "", ""),
        ("(x * 2) * self.scale", "(x.detach() * 2) * self.scale", TOLERANT, "none flows"),
        ("(x * 2) * self.scale", "(x + x) * self.scale", TOLERANT, ""),
    ],
)
def test_what_the_entry_never_shows_is_answered_as_the_original_does(
    tmp_path: Path, original: str, change: str, more: str, says: str
) -> None:
    found, _ = judged(tmp_path, original, change, more)
    assert (found.verdict == "wrong") is bool(says) and says in found.reason, found


@pytest.mark.parametrize(("change", "verdict"), [(BAKED, "wrong"), ("(x * 2) * self.scale", None)])
def test_weights_are_changed_where_build_returns_a_method(tmp_path: Path, change: str, verdict: str | None) -> None:
    texts = [MODEL.format(returns=each, more="") for each in ("x * (self.scale * 2)", change)]
    entry, changed = (text.replace("Model().eval()", "Model().eval().forward") for text in texts)
    with opened(tmp_path, {"bench.py": entry}) as referee:
        tree = write_files(tmp_path / "changed", {"bench.py": changed})
        assert referee.workload.states and referee.check(Build("changed", tree)).finding.verdict == verdict


@pytest.mark.parametrize(("change", "verdict"), [("x.detach() * self.scale", "wrong"), ("self.scale * x", None)])
def test_gradients_are_asked_in_training_too(tmp_path: Path, change: str, verdict: str | None) -> None:
    entry, changed = (
        'mode = "training"\n' + MODEL.format(returns=each, more="") for each in ("x * self.scale", change)
    )
    with opened(tmp_path, {"bench.py": entry}) as referee:
        found = referee.check(Build("changed", write_files(tmp_path / "changed", {"bench.py": changed}))).finding
    assert found.verdict == verdict, found


def test_of_a_few_tokens_enough_are_asked_to_see_that_one_in_a_hundred_is_wrong(tmp_path: Path) -> None:
    # one of 64 inputs is among the wrong ones 93 times of 100: always where they are those of a seed
    found, seeds = judged(tmp_path, "(x * self.scale).abs().argmax()", RARELY, seed=1)
    assert seeds > SEEDS and found.verdict == "wrong" and "integers differ" in found.reason


A_FUNCTION = """
import torch

torch.manual_seed(0)
FIRST, SECOND = torch.randn(1024, 1024) / 32, torch.randn(1024, 1024) / 32

def build():
    return lambda x: {returns}

def inputs(seed):
    return (torch.randn(64, 1024, generator=torch.Generator().manual_seed(seed)),)
"""


@pytest.mark.parametrize(
    ("returns", "verdict"),
    [
        ("x @ (FIRST.to(x.dtype) @ SECOND.to(x.dtype))", None),
        ("(x.bfloat16() @ (FIRST @ SECOND).bfloat16()).to(x.dtype)", "wrong"),
    ],
)
def test_sums_in_another_order_are_right_where_there_is_no_truth(
    tmp_path: Path, returns: str, verdict: str | None
) -> None:
    entry, changed = (
        A_FUNCTION.format(returns=each) for each in ("x @ FIRST.to(x.dtype) @ SECOND.to(x.dtype)", returns)
    )
    with opened(tmp_path, {"bench.py": entry}) as referee:
        assert not referee.workload.precision
        found = referee.check(Build("changed", write_files(tmp_path / "changed", {"bench.py": changed}))).finding
    assert found.verdict == verdict, found


FAILS_THE_DEVICE = """
import torch

def fails():
    raise RuntimeError("device-side assert triggered")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(16, 8))

    def forward(self, positions):
        if positions.min() < 0:  # as a device does: nothing of it answers from now on
            torch.cuda.is_initialized, torch.cuda.synchronize = lambda: True, fails
            fails()
        return self.table[positions]

def build():
    torch.manual_seed(0)
    return Model().eval()

def inputs(seed):
    return {"positions": torch.randint(16, (4, 6), generator=torch.Generator().manual_seed(seed))}
"""


def test_a_question_at_which_the_device_fails_is_not_asked(tmp_path: Path) -> None:
    with opened(tmp_path, {"bench.py": FAILS_THE_DEVICE}) as referee:
        assert "minus a hundred" in referee.workload.not_asked
        changed = write_files(
            tmp_path / "changed",
            {"bench.py": FAILS_THE_DEVICE.replace("self.table[positions]", "self.table[positions].clone()")},
        )
        assert referee.check(Build("changed", changed)).finding.verdict is None
