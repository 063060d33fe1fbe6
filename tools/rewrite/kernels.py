"""Put Triton kernels in the place of modules and products that run as several operations: norms and gates.

The class keeps its parameters and its own code, which still runs where the kernel does not apply: for other dtypes
than the one in which a norm's numbers were seen, and where a configuration chooses another activation. It refuses what
was not proved by its numbers, and gates that are not one product on one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import libcst as cst

from tools.candidate import Site
from tools.observation import Frame, Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import GATED_MUL, LAYER_NORM, RMS_NORM, is_used, use
from tools.rewrite.reading import spelling
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import FreshNames, after_docstring, dotted, find_all, names_in
from tools.rewrite.sites import at_frame, largest_first, of_class

_FORMULA = {"kind", "weight", "bias", "eps", "eps_value", "offset", "order", "module", "count", "dtype"}
_GATES = ("silu", "gelu", "gelu_tanh")  # that our kernel computes
NAMES = {
    "rms_norm": "RMS normalisation",
    "layer_norm": "Layer normalisation",
    "gated_activation": "Gated activation",
}


def find(observation: Observation) -> list[Site]:
    """Classes that compute a norm, and products with an activation."""
    found = [
        of_class(f"{row.kind}_norm", row, row.share, paths=row.paths, **row.model_dump(include=_FORMULA))
        for row in observation.norms
    ]
    for gated in observation.gated:
        if gated.activation in _GATES and gated.frames:
            detail: dict[str, Any] = {"class": _class_of(observation, gated.frames[0], gated.attribute)}
            detail |= gated.model_dump(include={"count", "activation", "attribute"})
            found.append(at_frame("gated_activation", gated.frames[0], gated.share, **detail))
    return largest_first(found)


def _class_of(observation: Observation, frame: Frame, attribute: str) -> str | None:
    """The full name of the class of a module that modules of a frame's class hold. Empty for one of torch's own; None
    for one of which instances may differ, one that a function makes again each time, and where they hold several.
    """
    owners = [row for row in observation.classes if row.name == frame.owner]  # its code may be another class's
    held = {f"{path}.{attribute}".removeprefix(".") for row in owners for path in row.paths} if attribute else set()
    found = [row for row in observation.classes if held.intersection(row.paths)]
    if len(found) != 1:
        return None
    name = f"{found[0].module}.{found[0].name}"
    if name.startswith("torch."):
        return ""
    return None if found[0].configured or "<locals>" in name else name


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    return _gated(source, site) if site.kind == "gated_activation" else _norm(source, site)


def norm_arguments(formula: Mapping[str, Any], owner: str) -> str:
    """What our kernels take after their tensors, for a norm of a formula whose module is `owner` in the source.

    The formula holds in the dtype in which its numbers were seen: in another the class may round elsewhere, or not at
    all. In float32 no order of rounding can be seen.
    """
    eps = f"{owner}.{formula['eps']}" if formula["eps"] else repr(formula["eps_value"])
    if formula["kind"] == "layer":
        bias = f"{owner}.{formula['bias']}" if formula["bias"] else "None"
        return f'{owner}.{formula["weight"]}, {bias}, {eps}, only="{formula["dtype"]}"'
    extra = "" if not formula["offset"] else f", offset={formula['offset']!r}"
    if formula["dtype"] not in ("float32", "float64") and formula["order"] != "cast_then_weight":
        extra += ", cast_first=False"
    return f'{owner}.{formula["weight"]}, {eps}{extra}, only="{formula["dtype"]}"'


def _norm(source: SourceFile, site: Site) -> dict[str, str]:
    owner = source.class_named(site.module_class, site.line)
    forward = source.method(owner, "forward")
    if forward is None:
        raise CannotRewrite(f"{owner.name.value} has no forward of its own")
    asset = RMS_NORM if site.kind == "rms_norm" else LAYER_NORM
    if is_used(source, asset):
        raise CannotRewrite(f"{owner.name.value} uses the kernel already")
    plain = [p.name.value for p in forward.params.params]
    if len(plain) != 2 or forward.params.kwonly_params or forward.decorators:
        raise CannotRewrite(f"{owner.name.value}.forward takes more than its input")
    ours = use(source, asset, site)
    this, x = plain
    taken = names_in(forward)
    result = FreshNames(taken)("fused")
    read = {n.attr.value for n in find_all(forward, cst.Attribute) if dotted(n.value) == this}
    helped = "super" in taken or read - {site.detail[name] for name in ("weight", "bias", "eps")}
    exactly = f" if type({this}) is __class__ else None" if helped else ""  # a subclass may replace what helps
    call = f"{result} = {ours}({x}, {norm_arguments(site.detail, this)}){exactly}"
    text = f"{call}\nif {result} is not None:\n    return {result}"
    first = after_docstring(forward)
    for line in source.statements(text):
        source.insert(line, before=first)
    return source.changes()


def _gated(source: SourceFile, site: Site) -> dict[str, str]:
    function = source.function_at(site.line)
    for product in source.at(site.line, function, cst.BinaryOperation):
        if not isinstance(product.operator, cst.Multiply):
            continue
        for activated, other in ((product.left, product.right), (product.right, product.left)):
            gate = _gate(source, activated, site)
            if gate is None:
                continue
            ours = use(source, GATED_MUL, site)
            text = f"{ours}({source.code(gate[0])}, {source.code(other)}{gate[1]})"
            source.replace(product, source.expression(text))
            return source.changes()
    raise CannotRewrite(f"the gate at {source.path}:{site.line} is not one product on one line")


def _gate(source: SourceFile, node: cst.BaseExpression, site: Site) -> tuple[cst.BaseExpression, str] | None:
    """(x, what our function takes after its tensors) of act(x), where act is a function of torch that is what was seen,
    or the module that was seen to compute it: the function looks at that in each call.
    """
    activation, attribute = site.detail["activation"], site.detail["attribute"]
    if not attribute:
        found = spelling.activation(source, node)
        known = found is not None and found[1] == activation
        return (found[0], "" if activation == "silu" else f', "{activation}"') if found and known else None
    if not isinstance(node, cst.Call) or dotted(node.func) != f"self.{attribute}":
        return None
    if len(node.args) != 1 or node.args[0].star or node.args[0].keyword is not None:
        return None
    if site.detail["class"] is None:
        raise CannotRewrite(f"self.{attribute} may compute something else in another configuration")
    known = f', {activation}="{site.detail["class"]}"' if site.detail["class"] else ""
    return node.args[0].value, f", self.{attribute}{known}"
