"""Put Triton kernels in the place of normalisation and gating that runs as several operations.

The class keeps its parameters and its own code, which still runs where the kernel does not apply. It refuses what
was not proved by its numbers, and gates that are not one product on one line.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import GATED_MUL, RMS_NORM, is_used, use
from tools.rewrite.source import SourceFile
from tools.rewrite.syntax import after_docstring, dotted, find_all

_FORMULA = {"weight", "eps", "eps_value", "offset", "order", "module", "count", "dtype"}
_ACTIVATIONS = {("silu", "none"): "silu", ("gelu", "none"): "gelu", ("gelu", "tanh"): "gelu_tanh"}
_FUNCTIONS = ("torch.nn.functional.silu", "torch.nn.functional.gelu")
NAMES = {"rms_norm": "RMS normalisation", "gated_activation": "Gated activation"}


def find(observation: Observation) -> list[Site]:
    """Classes that compute an RMS norm, and products with an activation."""
    found = [
        Site(
            kind="rms_norm", file=row.file, line=row.line, line_end=row.line_end, module_class=row.name,
            module_paths=tuple(row.paths), third_party=row.third_party, share=row.share,
            detail=row.model_dump(include=_FORMULA),
        )
        for row in observation.norms
    ]  # fmt: skip
    for gated in observation.gated:
        activation = _ACTIVATIONS.get((gated.activation, gated.approximate))
        if activation is None or not gated.frames:
            continue
        frame = gated.frames[0]
        found.append(
            Site(
                kind="gated_activation", file=frame.file, line=frame.line, line_end=frame.line,
                module_class=frame.owner, third_party=frame.third_party, share=gated.share,
                detail={
                    "module": frame.module, "count": gated.count, "activation": activation,
                    "attribute": gated.attribute,
                },
            )
        )  # fmt: skip
    return sorted(found, key=lambda site: -(site.share or 0))


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    return _rms_norm(source, site) if site.kind == "rms_norm" else _gated(source, site)


def _rms_norm(source: SourceFile, site: Site) -> dict[str, str]:
    owner = source.class_named(site.module_class, site.line)
    forward = source.method(owner, "forward")
    if forward is None:
        raise CannotRewrite(f"{owner.name.value} has no forward of its own")
    if is_used(source, RMS_NORM):
        raise CannotRewrite(f"{owner.name.value} uses the kernel already")
    plain = [p.name.value for p in forward.params.params]
    if len(plain) != 2 or forward.params.kwonly_params or forward.decorators:
        raise CannotRewrite(f"{owner.name.value}.forward takes more than its input")
    used = use(source, RMS_NORM, site.detail["module"])
    this, x = plain
    eps = f"{this}.{site.detail['eps']}" if site.detail["eps"] else repr(site.detail["eps_value"])
    extra = "" if not site.detail["offset"] else f", offset={site.detail['offset']!r}"
    if site.detail["dtype"] not in ("float32", "float64") and site.detail["order"] != "cast_then_weight":
        extra += ", cast_first=False"
    taken = {n.value for n in find_all(forward, cst.Name)}
    result = "fused" if "fused" not in taken else "fused_"
    call = f"{result} = {used.name}({x}, {this}.{site.detail['weight']}, {eps}{extra})"
    text = f"{call}\nif {result} is not None:\n    return {result}\n"
    first = after_docstring(forward)
    for line in cst.parse_module(text, source.module.config_for_parsing).body:
        source.insert(line, before=first)
    return {**used.files, source.path: source.result()}


def _gated(source: SourceFile, site: Site) -> dict[str, str]:
    function = source.function_at(site.line)
    for product in find_all(function, cst.BinaryOperation):
        first, last = source.lines(product)
        if not isinstance(product.operator, cst.Multiply) or not first <= site.line <= last:
            continue
        for activated, other in ((product.left, product.right), (product.right, product.left)):
            gate = _gate(source, activated, site.detail["attribute"])
            if gate is None:
                continue
            used = use(source, GATED_MUL, site.detail["module"])
            activation = site.detail["activation"]
            extra = "" if activation == "silu" else f', "{activation}"'
            text = f"{used.name}({source.code(gate)}, {source.code(other)}{extra})"
            source.replace(product, cst.parse_expression(text, source.module.config_for_parsing))
            return {**used.files, source.path: source.result()}
    raise CannotRewrite(f"the gate at {source.path}:{site.line} is not one product on one line")


def _gate(source: SourceFile, node: cst.BaseExpression, attribute: str) -> cst.BaseExpression | None:
    """x of act(x), where act is the function of torch, or the module that was seen to compute it."""
    if not isinstance(node, cst.Call) or not node.args or node.args[0].star or node.args[0].keyword is not None:
        return None
    if any(argument.keyword is None or argument.keyword.value != "approximate" for argument in node.args[1:]):
        return None
    name = dotted(node.func)
    if source.qualified(node.func) in _FUNCTIONS or (attribute and name.removeprefix("self.") == attribute):
        return node.args[0].value
    return None
