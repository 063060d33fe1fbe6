"""The outermost class compiled, captured and tuned: its state dict and the rest of its source stay as they are."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.observed import Target, only, same_results
from tools.observation import Observation, OpShare
from tools.rewrite import CannotRewrite, model_class, ops_package

EAGER, LAYER = 'backend="eager"', "self.layer = nn.Linear(16, 16)"


def target(tmp_path: Path, below: str = "", init: str = LAYER) -> Target:
    """`below` stands under the class, which is a base of the model's then."""
    made = Target.of_forward(tmp_path / "tree", "return self.layer(x * 2)", init)
    text = made.text().replace("class Model", "class Base") + below if below else made.text()
    return Target.write(made.tree, {"model.py": text})


def compiled(before: Target, settings: str = EAGER) -> Target:
    site = only(model_class.find(before.observe()))
    return before.with_files(model_class.compile_calls(before.tree, site, settings))


def test_the_outermost_class_is_compiled_once_and_copies_are_not(tmp_path: Path) -> None:
    before = target(tmp_path)
    site = only(model_class.find(before.observe()))
    after = compiled(before)
    assert 'self.layer = nn.Linear(16, 16)\n        self.compile(backend="eager")' in after.text()
    assert model_class.settings_in(after.tree, site) == EAGER
    assert same_results(before, after)
    with after.built() as (model, draw):
        assert model._compiled_call_impl is not None
        again = copy.deepcopy(model)
        assert again._compiled_call_impl is None
        assert again(*draw()).equal(model(*draw()))
    twice = model_class.compile_calls(after.tree, site, "dynamic=False")["model.py"]
    assert twice.count("self.compile(") == 1 and "self.compile(dynamic=False)" in twice


def test_a_class_that_is_entered_by_a_method_has_that_compiled_and_recorded(tmp_path: Path) -> None:
    before = target(tmp_path)
    found = only(model_class.find(before.observe()))
    site = found.model_copy(update={"detail": {**found.detail, "methods": ["forward"]}})
    after = before.with_files(model_class.compile_calls(before.tree, site, EAGER))
    assert '    @torch.compile(backend="eager")\n    def forward(' in after.text() and same_results(before, after)
    assert model_class.settings_in(after.tree, site) == EAGER and model_class.settings_in(before.tree, site) is None
    again = after.with_files(model_class.compile_calls(after.tree, site))
    assert again.text().count("@torch.compile") == 1 and model_class.settings_in(again.tree, site) == ""
    recorded = after.with_files(model_class.capture(after.tree, site))
    assert "@graphed(of=['forward'])\nclass Model" in recorded.text() and same_results(before, recorded)
    other = found.model_copy(update={"detail": {**found.detail, "methods": ["generate"]}})
    with pytest.raises(CannotRewrite, match="does not define generate itself"):
        model_class.compile_calls(before.tree, other)


@pytest.mark.parametrize("body", ["    pass\n", '    """What it is for."""\n\n    size = 16\n\n'])
def test_a_class_without_its_own_init_gets_one_and_keeps_its_docstring(tmp_path: Path, body: str) -> None:
    before = target(tmp_path, f"\n\nclass Model(Base):\n{body}")
    after = compiled(before)
    assert same_results(before, after)
    with after.built() as (model, _):
        assert type(model).__doc__ == ("What it is for." if "for" in body else None)
        assert model._compiled_call_impl is not None


@pytest.mark.parametrize(
    ("below", "init", "why"),
    [
        ("\n\nclass Model(Base): pass\n", LAYER, "on the line of its class"),
        ("\n\nclass Model(Base):\n    def compile(self):\n        pass\n", LAYER, "method named"),
        ("", f"{LAYER}\nif not callable(nn.Linear): return", "returns early"),
    ],
)
def test_a_class_that_does_something_else_is_left_alone(tmp_path: Path, below: str, init: str, why: str) -> None:
    with pytest.raises(CannotRewrite, match=why):
        compiled(target(tmp_path, below, init))


def test_a_third_party_model_gets_advice(tmp_path: Path) -> None:
    entry = "import torch\n\ndef build():\n    return torch.nn.Linear(4, 4).eval()\n\n"
    entry += "def inputs(seed):\n    return (torch.randn(2, 4),)\n"
    seen = Target.write(tmp_path, {"bench.py": entry}).observe()
    assert model_class.find(seen) == []
    assert "model.compile()" in model_class.advice(seen, "")


def test_a_class_changed_in_several_ways_runs_as_before_without_a_device(tmp_path: Path) -> None:
    before = after = target(tmp_path)
    site = only(model_class.find(before.observe()))
    calls = {
        "tune_gemm()": (ops_package.TUNABLE_GEMM, ""),
        "route_linears(self)": (ops_package.ROUTED_LINEAR, "self"),
        "pad_linears(self)": (ops_package.PADDED_LINEAR, "self"),
        "find_convolutions()": (ops_package.CONV_FIND, ""),
    }
    for line, (asset, arguments) in calls.items():
        after = after.with_files(model_class.call_in_init(after.tree, site, asset, arguments))
        assert f"        {line}\n" in after.text()
        with pytest.raises(CannotRewrite, match="already"):
            model_class.call_in_init(after.tree, site, asset, arguments)
    after = after.with_files(model_class.capture(after.tree, site))
    assert "@graphed\nclass Model" in after.text()
    with pytest.raises(CannotRewrite, match="already"):
        model_class.capture(after.tree, site)
    assert same_results(before, after)


CONVOLUTIONS = ("conv2d", "conv_transpose1d", "convolution")
OTHERS = ("conv2d_kernel", "convert", "mm")


@pytest.mark.parametrize(("name", "share"), [*((n, 0.5) for n in CONVOLUTIONS), *((n, 0.0) for n in OTHERS)])
def test_convolutions_are_known_by_their_operations(name: str, share: float) -> None:
    ops = [OpShare(name=name, share=0.5, count=1), OpShare(name="add", share=0.5, count=1)]
    assert model_class.convolution_share(Observation.model_construct(ops=ops)) == share


def test_the_class_that_takes_most_of_the_time_when_it_is_called_again_comes_first(tmp_path: Path) -> None:
    seen = target(tmp_path).observe()
    (model,), (row, *_) = seen.callable.outermost, seen.classes
    named = {name: model.model_copy(update={"name": name, "path": name}) for name in ("Encoder", "Decoder")}
    classes = [
        row.model_copy(update={"name": name, "paths": [name], "inclusive_share": share})
        for name, share in (("Encoder", 0.05), ("Decoder", 0.95))
    ]
    called = seen.callable.model_copy(update={"outermost": [*named.values()]})
    sites = model_class.find(seen.model_copy(update={"callable": called, "classes": classes}))
    assert [(site.module_class, site.share) for site in sites] == [("Decoder", 0.95), ("Encoder", 0.05)]
