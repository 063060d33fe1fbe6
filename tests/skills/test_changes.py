"""Whatever becomes of a module's weights, layers and settings, an asset that keeps something of them gives what the
plain module gives, and goes on serving where it can. One table of changes for all such assets.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune, spectral_norm
from torch.nn.utils.parametrizations import orthogonal

from tests.skills.uses import CUTS, USES, each, pair

pytestmark = pytest.mark.usefixtures("at_work")


def nets(model: Any) -> list[Any]:
    return list(model) if isinstance(model, nn.ModuleList) else [model]


def one(model: Any) -> Any:
    """The Net that changes."""
    return nets(model)[-1]


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value * 0.5 for name, value in model.state_dict().items()}


def via_file(model: nn.Module) -> None:
    file = io.BytesIO()
    torch.save(state_of(model), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))


def scaled(layer: nn.Linear) -> nn.Module:
    """A new layer, of weights that are those of another times 3."""
    new = nn.Linear(layer.in_features, layer.out_features).to(layer.weight)
    new.load_state_dict({name: value * 3 for name, value in layer.state_dict().items()})
    return new.eval()


class Adapter(nn.Module):
    """As a LoRA library wraps a layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def add_bias(net: Any) -> None:
    net.bare.bias = nn.Parameter(torch.full_like(net.bare.weight[0], 2.0))


def new_hooks(net: Any) -> None:
    net.second._forward_hooks = OrderedDict()
    net.second.register_forward_hook(lambda module, args, out: out * 2)


def set_data(parameter: nn.Parameter, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    parameter.data = change(parameter.data)


def by_another_library(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, to which torch counts no write."""
    return torch.from_dlpack(tensor.detach())


def own_forward(layer: nn.Linear) -> None:
    layer.forward = lambda x: F.linear(x, layer.weight) * 2  # type: ignore[method-assign,assignment]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda m: one(m).first.weight.mul_(0.5),
    "a bias in place": lambda m: one(m).second.bias.add_(1.0),
    "a buffer in place": lambda m: one(m).offset.add_(1.0),
    "a held tensor in place": lambda m: one(m).held.mul_(3.0),
    "uncounted": lambda m: one(m).first.weight.data.mul_(0.5),
    "a row uncounted": lambda m: by_another_library(one(m).first.weight)[77].mul_(0.5),
    "a column uncounted": lambda m: by_another_library(one(m).first.weight)[:, 77].mul_(0.5),
    "a buffer uncounted": lambda m: by_another_library(one(m).offset).add_(1.0),
    "a held tensor uncounted": lambda m: by_another_library(one(m).held).mul_(3.0),
    "a checkpoint": lambda m: m.load_state_dict(state_of(m)),
    "assigned": lambda m: m.load_state_dict(state_of(m), assign=True),
    "through a file": via_file,
    "moved": lambda m: m._apply(torch.clone),
    "another type and back": lambda m: m.double().float(),
    "copied": copy.deepcopy,
    "pickled": lambda m: pickle.loads(pickle.dumps(m)),
    "shared": lambda m: m.share_memory(),
    "data": lambda m: set_data(one(m).first.weight, lambda t: t * 0.5),
    "all data": lambda m: [set_data(p, lambda t: t * 0.5) for p in m.parameters()],
    "turned": lambda m: set_data(one(m).second.weight, lambda t: t.t()),
    "all turned": lambda m: [set_data(each.first.weight, lambda t: t.t()) for each in nets(m)],
    "one bias for all": lambda m: set_data(one(m).second.bias, lambda t: t[:1]),
    "rows cut": lambda m: [set_data(p, lambda t: t[:1]) for p in one(m).second.parameters()],
    "another parameter": lambda m: setattr(one(m).first, "weight", nn.Parameter(one(m).first.weight * 3)),
    "no bias": lambda m: one(m).second.register_parameter("bias", None),
    "a bias that was none": lambda m: add_bias(one(m)),
    "another layer": lambda m: setattr(one(m), "first", scaled(one(m).first)),
    "another last layer": lambda m: setattr(one(m), "last", scaled(one(m).last)),
    "a part more": lambda m: one(m).more.append(nn.Tanh().eval()),
    "wrapped": lambda m: setattr(one(m), "first", Adapter(one(m).first).eval()),
    "a hook": lambda m: one(m).second.register_forward_hook(lambda module, args, out: out * 2),
    "another place for hooks": lambda m: new_hooks(one(m)),
    "a forward": lambda m: own_forward(one(m).second),
    "a hook on the whole": lambda m: one(m).register_forward_hook(lambda module, args, out: out * 2),
    "a forward of the whole": lambda m: setattr(one(m), "forward", lambda x: one(m).last(one(m).first(x))),
    "training": lambda m: m.train(),
    "pruned": lambda m: prune.l1_unstructured(one(m).first, "weight", 0.5),
    "of a spectral norm": lambda m: spectral_norm(one(m).first),
    "orthogonal": lambda m: orthogonal(one(m).first),
    "an attribute": lambda m: setattr(one(m), "scale", 7.0),
    "in a container": lambda m: one(m).settings["shift"].__setitem__(0, 1.0),
    "another container": lambda m: setattr(one(m), "settings", {"shift": [2.0]}),
}


def changed(model: Any, change: str) -> Any:
    """The module, or what a copy made of it."""
    torch.manual_seed(1)  # what is drawn is the same for both
    made = CHANGES[change](model)
    return made if type(made) is type(model) else model


UNSEEN = {(name, change) for name, use in USES.items() for change in use.unseen}  # as it says there


@each("change", CHANGES, without=UNSEEN)
def test_it_follows(name: str, change: str) -> None:
    use = USES[name]
    plain, used, x = pair(use)
    before, plain, used = used, changed(plain, change), changed(used, change)
    if used is not before:
        one(before).first.weight.mul_(3)  # a copy has weights of its own
    for _ in range(3):
        torch.testing.assert_close(use.call(used, x), use.call_plain(plain, x), rtol=1e-4, atol=1e-4)
    if change in use.after:
        assert use.serves(used, x)
    if change not in CUTS:
        for model in (plain, used):
            one(model).last.weight.mul_(0.5)
        torch.testing.assert_close(use.call(used, x), use.call_plain(plain, x), rtol=1e-4, atol=1e-4)
