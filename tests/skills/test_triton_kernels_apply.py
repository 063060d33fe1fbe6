"""Where the Triton templates step aside, shown on a CPU whose tensors are taken for a GPU's, without any launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from tests import assets

NAMES = ("rms_norm", "layer_norm", "gated_mul", "rotary", "softmax_topk")
ON_A_CPU = torch.ones(1).get_device()
LAUNCHED = torch.full((), 7.0)


def entries(loaded: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """The functions that may return None, on x of (rows, even columns) and a weight of the columns."""
    rms, layer = loaded["rms_norm"], loaded["layer_norm"]
    return {
        "rms_norm": lambda x, weight, **more: rms.rms_norm(x, weight, 1e-6, **more),
        "layer_norm": lambda x, weight, **more: layer.layer_norm(x, weight, None, 1e-5, **more),
        "add_rms_norm": lambda x, weight, **more: rms.add_rms_norm(x, x, weight, 1e-6, **more),
        "add_layer_norm": lambda x, weight, **more: layer.add_layer_norm(x, x, weight, weight, 1e-5, **more),
        "rotary": lambda x, _: loaded["rotary"].rotary(x, x, x),
        "softmax_topk": lambda x, _: loaded["softmax_topk"].softmax_topk(x, 2),
    }


class Kernels:
    """The entry functions where a launch gives LAUNCHED."""

    def __init__(self, **loaded: Any) -> None:
        self.loaded = loaded
        gate = loaded["gated_mul"].gated_mul
        self.calls = {**entries(loaded), "gated_mul": lambda x, _: gate(x, x)}

    def launched(self, x: torch.Tensor) -> set[str]:
        return {name for name, call in self.calls.items() if call(x, x[0]) is LAUNCHED}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """As on the current GPU, until a test says otherwise."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: ON_A_CPU)
    launching = assets.load("triton-on-rocm", "launching")
    loaded = {name: assets.beside(launching, name) for name in NAMES}
    monkeypatch.setattr(launching, "triton", object())  # as where Triton is installed
    for module in loaded.values():
        monkeypatch.setattr(module, "_kernel", object(), raising=False)
        for name in [name for name in vars(module) if name.startswith("_run")]:
            monkeypatch.setattr(module, name, lambda *given: LAUNCHED)
    return Kernels(**loaded)


def test_they_are_launched_on_the_current_device_alone(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 8)
    assert kernels.launched(x) == set(kernels.calls)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: ON_A_CPU + 1)
    assert kernels.launched(x) == set()
    assert torch.equal(kernels.loaded["gated_mul"].gated_mul(x, x, "gelu"), F.gelu(x) * x)


class Subclass(torch.Tensor):
    pass


def test_whoever_records_or_changes_operations_sees_them(kernels: Kernels) -> None:
    seen: list[set[str]] = []

    def looked(x: torch.Tensor) -> torch.Tensor:
        seen.append(kernels.launched(x))
        return x + 1

    x = torch.ones(2, 8)
    looked(x)
    assert seen.pop() == set(kernels.calls)
    torch.jit.trace(looked, (x,), check_trace=False)
    make_fx(looked)(x)
    torch.func.vmap(looked)(torch.ones(3, 2, 8))
    torch.func.jvp(looked, (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        looked(torch.autograd.forward_ad.make_dual(x, x))
    with FlopCounterMode(display=False):
        looked(x)
    looked(x.as_subclass(Subclass))
    assert seen == [set()] * 7


def test_a_norm_that_was_seen_in_one_dtype_is_computed_in_no_other(kernels: Kernels) -> None:
    for name in ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            x = torch.randn(2, 8, dtype=dtype)
            names = ("float16", "bfloat16", "float32")
            applies = {only for only in names if kernels.calls[name](x, x[0], only=only) is LAUNCHED}
            assert applies == {str(dtype).removeprefix("torch.")}
            assert kernels.calls[name](x, x[0]) is LAUNCHED


def test_a_configuration_without_a_weight_or_with_no_number_for_eps_goes_its_own_way(kernels: Kernels) -> None:
    x = torch.randn(2, 8)
    assert kernels.calls["rms_norm"](x, None) is kernels.calls["add_rms_norm"](x, None) is None
    for eps in (None, torch.tensor(1e-6)):
        assert kernels.loaded["rms_norm"].rms_norm(x, x[0], eps) is None
        assert kernels.loaded["layer_norm"].layer_norm(x, x[0], None, eps) is None
        assert kernels.loaded["rms_norm"].add_rms_norm(x, x, x[0], eps) is None
        assert kernels.loaded["layer_norm"].add_layer_norm(x, x, x[0], None, eps) is None


def test_norms_under_autocast_are_wider(kernels: Kernels) -> None:
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    before, autocast = kernels.launched(x), torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        assert before - kernels.launched(x) == {name for name in before if "norm" in name} != set()
    finally:
        torch.set_autocast_enabled("cuda", autocast)


def test_a_softmax_in_another_dtype_than_float32_is_left_alone(kernels: Kernels) -> None:
    softmax_topk = kernels.loaded["softmax_topk"].softmax_topk
    narrow, wide = torch.randn(2, 8, dtype=torch.bfloat16), torch.randn(2, 8)
    assert softmax_topk(wide, 2) is softmax_topk(narrow, 2, dtype=torch.float32) is LAUNCHED
    assert softmax_topk(narrow, 2) is softmax_topk(wide, 2, dtype=torch.bfloat16) is None


class Named(nn.Module):
    """Without anything that two modules of it could differ by."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(x)


class Configured(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.act = getattr(F, kind)

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(x)


class Other(nn.SiLU):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    module = nn.SiLU()
    module.register_forward_hook(lambda module, given, out: 2 * out)
    return module


def adapted() -> nn.Module:
    module = nn.SiLU()
    module.forward = F.relu  # type: ignore[method-assign]
    return module


NAMED = {"silu": f"{__name__}.Named"}
MODULES = [
    (nn.SiLU, {}, "silu"),
    (nn.GELU, {}, "gelu"),
    (lambda: nn.GELU(approximate="tanh"), {}, "gelu_tanh"),
    (Named, NAMED, "silu"),
    (Named, {"gelu": NAMED["silu"]}, "gelu"),
    (Named, {}, None),
    (Named, {"silu": "elsewhere.Named"}, None),
    (lambda: Configured("silu"), {"silu": f"{__name__}.Configured"}, None),
    (nn.Tanh, NAMED, None),
    (Other, {}, None),
    (lambda: nn.SiLU(inplace=True), {}, None),
    (hooked, {}, None),
    (adapted, {}, None),
    (lambda: F.relu, {}, None),
]


@pytest.mark.parametrize(("make", "known", "kind"), MODULES)
def test_a_gate_asks_its_module_what_it_computes(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, make: Any, known: dict[str, str], kind: str | None
) -> None:
    asset, module, x = kernels.loaded["gated_mul"], make(), torch.randn(2, 8)
    monkeypatch.setattr(asset, "_run", lambda gate, up, activation, kernel: activation)
    out = asset.gated_mul(x.clone(), x, module, **known)
    assert out == kind if kind else torch.equal(out, module(x.clone()) * x)


def test_who_sees_every_module_sees_the_gates_too(kernels: Kernels) -> None:
    asset, x, seen = kernels.loaded["gated_mul"], torch.randn(2, 8), list[nn.Module]()
    exactly = assets.load("triton-on-rocm", "exactly").is_exactly
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, out: seen.append(module))
    try:
        assert torch.equal(asset.gated_mul(x, x, nn.SiLU()), F.silu(x) * x) and len(seen) == 1
        assert not exactly(Named(), NAMED["silu"])
    finally:
        handle.remove()
    assert asset.gated_mul(x, x, nn.SiLU()) is LAUNCHED and exactly(Named(), NAMED["silu"])


def test_a_module_is_exactly_of_a_class() -> None:
    exactly = assets.load("triton-on-rocm", "exactly").is_exactly
    assert exactly(nn.LayerNorm(8), "torch.nn.modules.normalization.LayerNorm")
    assert not exactly(nn.RMSNorm(8), "torch.nn.modules.normalization.LayerNorm")
    assert not exactly(Other(), "torch.nn.modules.activation.SiLU") and not exactly(None, NAMED["silu"])
    for module in (hooked(), adapted()):
        assert not exactly(module, "torch.nn.modules.activation.SiLU")


class Model(nn.Module):
    """Each of the functions once, as rewritten code calls them."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.act, self.norm = act, nn.LayerNorm(8, device="cuda")
        self.functions = [getattr(assets.load("triton-on-rocm", name), name) for name in NAMES]
        self.add = assets.load("triton-on-rocm", "layer_norm").add_layer_norm
        self.exactly = assets.load("triton-on-rocm", "exactly").is_exactly

    def forward(self, x: torch.Tensor) -> Any:
        rms_norm, layer_norm, gated_mul, rotary, softmax_topk = self.functions
        h = gated_mul(x + 1, x, self.act, **NAMED)
        only = "float32" if type(self) is __class__ else "float16"  # type: ignore[name-defined]
        h = rms_norm(h, self.norm.weight, self.norm.eps, only=only)
        if self.exactly(self.norm, "torch.nn.modules.normalization.LayerNorm"):
            h, _ = self.add(h, x, self.norm.weight, self.norm.bias, self.norm.eps, only="float32")
        return softmax_topk(rotary(layer_norm(h, None, None, 1e-5), x, x), 2)


@pytest.mark.parametrize(("act", "gate"), [(Named(), "gated_mul"), (nn.GELU(), "gated_mul"), (nn.Tanh(), "mul")])
def test_compiled_code_has_all_of_it_without_a_break(act: nn.Module, gate: str) -> None:
    called = list[str]()

    def backend(graph: torch.fx.GraphModule, given: Any) -> Any:
        called.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        torch.compile(Model(act), fullgraph=True, backend=backend)(torch.ones(2, 8, device="cuda"))
    operators = [name.split(".")[1] for name in called if name.startswith("assets_")]
    gates = ["gated_mul"] if gate == "gated_mul" else []
    assert operators == [*gates, "rms_norm", "add_layer_norm", "layer_norm", "rotary", "softmax_topk"]
