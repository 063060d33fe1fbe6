"""What a change does beside its results: to the model as it is built, to the process, and to what is done with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging.check import begins_otherwise
from tools.judging.described import AsBuilt
from tools.judging.worker import Build

ENTRY = """
import random

import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.act = torch.tanh

    def forward(self, query, key):
        return self.second(self.act(self.first(query))) + key

def build():
    torch.manual_seed(0)
    return Model().eval()

def inputs(seed):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
    return {"query": x, "key": x}
"""
FIRST = "self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)"
CALL = "return self.second(self.act(self.first(query))) + key"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            FIRST,
            FIRST.replace("self.first, self.second", "self.second, self.first"),
            "gradients: the result is nested differently",
        ),
        (FIRST, FIRST + "\n        self.second.requires_grad_(False)", "second.weight does not learn"),
        (FIRST, "torch.rand(3)\n        " + FIRST, "begins with other numbers"),
        ("self.act = torch.tanh", "self.act = lambda x: x.tanh()", "pickle"),
        (
            "import random\n",
            "import random\n\nimport torch\n\ntorch.set_grad_enabled(False)\n",
            "is_grad_enabled as built",
        ),
        ("import random\n", "import random\n\nimport torch\n\ntorch.set_flush_denormal(True)\n", "set_flush_denormal"),
        (
            "import random\n",
            "import random, warnings\n\nwarnings.simplefilter('ignore')\n",
            "warnings.filters[Warning]",
        ),
        ("import random\n", "import random\n\nimport numpy\n\nnumpy.seterr(all='ignore')\n", "numpy.geterr"),
        (
            "import random\n",
            "import random\n\nimport torch\n\ntorch.backends.cuda.enable_math_sdp(False)\n",
            "math_sdp_enabled",
        ),
        (
            "import random\n",
            "import random\n\nimport torch\n\ntorch.nn.Linear.reset_parameters = lambda self: None\n",
            "it replaces torch.nn.Linear.reset_parameters",
        ),
        (
            CALL,
            f"{CALL.replace('return', 'out =')}\n        torch.set_grad_enabled(False)\n        return out",
            "is_grad_enabled after a call",
        ),
        (CALL, f"query.requires_grad_()\n        {CALL}", "a gradient is kept for"),
        (
            CALL,
            "again = torch.nn.Parameter(self.first.weight.detach().clone())\n"
            f"        torch.is_grad_enabled() or setattr(self.first, 'weight', again)\n        {CALL}",
            "the parameters of the model",
        ),
        (
            CALL,
            f"with torch.enable_grad():\n            self.first(query.detach()).sum().backward()\n        {CALL}",
            "the gradients in .grad",
        ),
        (CALL, f"import warnings, numpy\n        warnings.filterwarnings('ignore', 'a text')\n        {CALL}", ""),
        (CALL, f"random.seed(0)\n        {CALL}", "the state of random"),
        (CALL, f"torch.manual_seed(0)\n        {CALL}", "the state of torch.random"),
        (CALL, f"with torch.inference_mode(not self.training):\n            {CALL}", "inference mode"),
        (CALL, CALL.replace("key", "query"), "apart"),
        (CALL, "return torch.add(self.second(torch.tanh(self.first(query))), key)", ""),
    ],
)
def test_what_a_change_does_beside_its_results_is_looked_at(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert ENTRY.count(old) == 1
    with opened(tmp_path, {"bench.py": ENTRY}) as referee:
        changed = write_files(tmp_path / "changed", {"bench.py": ENTRY.replace(old, new)})
        found = referee.check(Build("changed", changed)).finding
        pristine = referee.check_pristine().finding
    assert (found.verdict in ("wrong", "refused", "broken")) is bool(says) and says in found.reason, found
    assert pristine.verdict is None, pristine


def test_parameters_keep_their_order_and_whether_they_learn_where_no_gradients_tell() -> None:
    def built(digest: str = "1", **learns: bool) -> AsBuilt:
        return AsBuilt(learns=learns, state=["a", "b"], digest=digest)

    known = built(a=True, b=True)
    assert begins_otherwise(built(a=True, b=True), known, known) == ""
    assert "another order" in begins_otherwise(built(b=True, a=True), known, known)
    assert "b does not learn" in begins_otherwise(built(a=True, b=False), known, known)
    assert "other numbers" in begins_otherwise(built("2", a=True, b=True), known, known)
    drawn_anew = built("3", a=True, b=True)
    assert begins_otherwise(built("2", a=True, b=True), known, drawn_anew) == ""


def test_a_target_that_answers_in_inference_mode_can_be_judged(tmp_path: Path) -> None:
    entry = ENTRY.replace("    def forward", "    @torch.inference_mode()\n    def forward")
    with opened(tmp_path, {"bench.py": entry}) as referee:
        assert referee.check_pristine().finding.verdict is None


def test_a_target_whose_calls_write_to_a_buffer_can_be_judged(tmp_path: Path) -> None:
    counted = FIRST + '\n        self.register_buffer("seen", torch.zeros(8))'
    entry = ENTRY.replace(FIRST, counted).replace(CALL, f"self.seen.add_(query.mean(0))\n        {CALL}")
    with opened(tmp_path, {"bench.py": entry}) as referee:
        assert not referee.workload.has_threads and referee.check_pristine().finding.verdict is None
