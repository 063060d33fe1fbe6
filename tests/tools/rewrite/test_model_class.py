"""The outermost class compiled, captured and tuned: its state dict and the rest of its source stay as they are."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.observed import Target, only, same_results
from tools.observation import Observation, Ops, OpShare
from tools.rewrite import CannotRewrite, compile_model, route_gemm, wrap_calls

MODEL = """
import torch
from torch import nn


class Inner(nn.Module):
    def forward(self, x):
        return x * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return self.layer(self.inner(x))
"""


def test_the_outermost_class_is_compiled_and_copies_are_not(tmp_path: Path) -> None:
    before = Target.of_model(tmp_path / "tree", MODEL)
    site = only(compile_model.find(before.observe()))
    assert site.module_class == "Model"
    after = before.with_files(compile_model.rewrite(before.tree, site, 'backend="eager"'))
    assert 'self.layer = nn.Linear(16, 16)\n        self.compile(backend="eager")' in after.text()
    assert compile_model.settings_in(after.tree, site) == 'backend="eager"'
    assert same_results(before, after)
    with after.built() as (model, draw):
        assert model._compiled_call_impl is not None
        again = copy.deepcopy(model)
        assert again._compiled_call_impl is None
        assert again(*draw()).equal(model(*draw()))


def test_a_compiled_class_gets_other_settings_not_a_second_call(tmp_path: Path) -> None:
    target = Target.of_model(tmp_path / "tree", MODEL)
    site = only(compile_model.find(target.observe()))
    once = target.with_files(compile_model.rewrite(target.tree, site, ""))
    twice = compile_model.rewrite(once.tree, site, "dynamic=False")["model.py"]
    assert twice.count("self.compile(") == 1 and "self.compile(dynamic=False)" in twice


def test_a_class_without_its_own_init_gets_one(tmp_path: Path) -> None:
    text = MODEL.replace("class Model", "class Base").replace("Inner(nn.Module)", "Inner(nn.Module)")
    target = Target.of_model(tmp_path / "tree", text + "\n\nclass Model(Base):\n    pass\n")
    site = only(compile_model.find(target.observe()))
    after = target.with_files(compile_model.rewrite(target.tree, site, 'backend="eager"'))
    assert same_results(target, after)


def test_a_class_keeps_its_docstring(tmp_path: Path) -> None:
    body = '    """What it is for."""\n\n    size = 16\n\n'
    target = Target.of_model(
        tmp_path / "tree", MODEL.replace("class Model", "class Base") + f"\n\nclass Model(Base):\n{body}"
    )
    site = only(compile_model.find(target.observe()))
    after = target.with_files(compile_model.rewrite(target.tree, site, 'backend="eager"'))
    assert same_results(target, after)
    with after.built() as (model, _):
        assert type(model).__doc__ == "What it is for." and model._compiled_call_impl is not None


def test_a_class_on_one_line_is_left_alone(tmp_path: Path) -> None:
    text = MODEL.replace("class Model", "class Base") + "\n\nclass Model(Base): pass\n"
    target = Target.of_model(tmp_path / "tree", text)
    site = only(compile_model.find(target.observe()))
    with pytest.raises(CannotRewrite, match="on the line of its class"):
        compile_model.rewrite(target.tree, site, "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "    def forward(self, x):\n        return self.layer",
            "    def compile(self):\n        pass\n\n    def forward(self, x):\n        return self.layer",
        ),
        (
            "        self.inner = Inner()",
            "        if not callable(nn.Linear):\n            return\n        self.inner = Inner()",
        ),
    ],
)
def test_a_class_that_does_something_of_its_own_is_left_alone(tmp_path: Path, old: str, new: str) -> None:
    target = Target.of_model(tmp_path / "tree", MODEL.replace(old, new))
    with pytest.raises(CannotRewrite):
        compile_model.rewrite(target.tree, only(compile_model.find(target.observe())))


def test_a_third_party_model_gets_advice(tmp_path: Path) -> None:
    target = Target.write(
        tmp_path / "tree",
        {
            "bench.py": (
                "import torch\n\ndef build():\n    return torch.nn.Linear(4, 4).eval()\n\n"
                "def inputs(seed):\n    return (torch.randn(2, 4),)\n"
            )
        },
    )
    seen = target.observe()
    assert compile_model.find(seen) == []
    assert "model.compile()" in compile_model.advice(seen, "")


def test_captured_and_tuned_classes_run_as_before_without_a_device(tmp_path: Path) -> None:
    before = Target.of_model(tmp_path / "tree", MODEL)
    site = only(compile_model.find(before.observe()))
    after = before.with_files(wrap_calls.capture(before.tree, site))
    assert "@graphed\nclass Model" in after.text()
    after.with_files(route_gemm.tune(after.tree, site))
    both = Target(after.tree.with_name(after.tree.name + "+"))
    assert "        tune_gemm()" in both.text()
    assert same_results(before, both)
    with pytest.raises(CannotRewrite, match="already"):
        wrap_calls.capture(both.tree, site)
    with pytest.raises(CannotRewrite, match="already"):
        route_gemm.tune(both.tree, site)


def test_a_frozen_class_gives_the_same_and_is_not_frozen_twice(tmp_path: Path) -> None:
    before = Target.of_model(tmp_path / "tree", MODEL)
    site = only(compile_model.find(before.observe()))
    after = before.with_files(wrap_calls.freeze(before.tree, site, 'backend="eager"'))
    assert '@frozen(backend="eager")\nclass Model' in after.text()
    assert same_results(before, after)
    with pytest.raises(CannotRewrite, match="frozen already"):
        wrap_calls.freeze(after.tree, site)


@pytest.mark.parametrize(
    ("how", "line"), [(route_gemm.route, "route_linears(self)"), (route_gemm.pad, "pad_linears(self)")]
)
def test_linear_layers_are_given_other_ways_when_the_model_is_made(tmp_path: Path, how: Any, line: str) -> None:
    target = Target.of_model(tmp_path / "tree", MODEL)
    after = target.with_files(how(target.tree, only(compile_model.find(target.observe()))))
    assert f"        {line}\n" in after.text()
    assert same_results(target, after), "on a CPU they are as they were"


CONVOLUTIONS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x))).mean((2, 3))
"""


def test_convolutions_are_searched_for_when_the_model_is_made(tmp_path: Path) -> None:
    target = Target.of_model(tmp_path / "tree", CONVOLUTIONS, inputs="(torch.randn(2, 3, 9, 9),)")
    seen = target.observe()
    assert route_gemm.convolution_share(seen) > 0.05
    site = only(compile_model.find(seen))
    after = target.with_files(route_gemm.find_convolutions(target.tree, site))
    assert "        find_convolutions()\n" in after.text()
    assert same_results(target, after), "without a GPU it says nothing"


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("aten::mkldnn_convolution", 0.5),
        ("aten::thnn_conv2d", 0.5),
        ("aten::slow_conv_dilated2d", 0.5),
        ("aten::_convert_indices_from_coo_to_csr", 0.0),
        ("conv2d_kernel", 0.0),
        ("aten::mm", 0.0),
    ],
)
def test_convolutions_are_known_by_their_operations(name: str, share: float) -> None:
    ops = Ops(rows=[OpShare(name=name, share=0.5, count=1), OpShare(name="aten::add", share=0.5, count=1)], other=0.0)
    assert route_gemm.convolution_share(Observation.model_construct(ops=ops)) == share
