"""Run linear layers that get the same tensor as one matrix multiplication: query, key and value; gate and up.

The layers and their parameters stay as they are; a `PackedLinear` beside them holds their weights in one piece.
Layers stay as they are where they are called in different blocks, more than once, or on an input that changes between
the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import PACKED_LINEAR, use
from tools.rewrite.reading.flow import Block
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import (
    FreshNames,
    Statement,
    dotted,
    find_all,
    holds,
    methods,
    names_in,
    statements,
    walk,
)
from tools.rewrite.sites import largest_first, of_class


def find(observation: Observation) -> list[Site]:
    """One site for each class and set of layers that were given the same tensor."""
    found = []
    for group in observation.linear_groups:
        layers = group.layers
        if not all(layer.plain and not layer.hooked for layer in layers):
            continue
        if len({(layer.in_features, layer.dtype) for layer in layers}) > 1:
            continue
        detail = group.model_dump(include={"names", "layers", "count"})
        found.append(of_class("projections", group, group.share, paths=group.paths, **detail))
    return largest_first(found)


def rewrite(tree: Path, sites: Sequence[Site]) -> dict[str, str]:
    """New file contents, for sites of one file. Raises: CannotRewrite."""
    source = SourceFile(tree, sites[0].file)
    ours = use(source, PACKED_LINEAR, sites[0])
    for site in sites:
        _pack(source, site, ours)
    return source.changes()


def _pack(source: SourceFile, site: Site, packed_linear: str) -> None:
    owner = source.class_named(site.module_class, site.line)
    names = list(site.detail["names"])
    setup = _setup(source, owner, names)
    function, calls = _calls(source, owner, names)
    argument, body = _one_place(source, function, calls)

    attribute = _attribute(source, owner, names)
    layers = ", ".join(f"self.{name}" for name in names)
    (packed,) = source.statements(f"self.{attribute} = {packed_linear}({layers})")
    source.insert(packed, after=setup)

    results = [*map(FreshNames(names_in(function)), (f"{name}_out" for name in names))]
    first = next(statement for statement in body if any(holds(statement, call) for call in calls))
    (called,) = source.statements(f"{', '.join(results)} = self.{attribute}({source.code(argument)}, {layers})")
    source.insert(called, before=first)
    for call, result in zip(calls, results, strict=True):
        source.replace(call, cst.Name(result))


def _setup(source: SourceFile, owner: cst.ClassDef, names: list[str]) -> Statement:
    """The statement of `__init__` after which all layers are there."""
    init = source.method(owner, "__init__")
    if init is None:
        raise CannotRewrite(f"{owner.name.value} has no __init__ of its own")
    body = statements(init)
    wanted = {f"self.{name}" for name in names}
    last = None
    for statement in body:
        for assign in find_all(statement, cst.Assign):
            targets = {dotted(node) for t in assign.targets for node in find_all(t, cst.Attribute)}
            if targets & wanted:
                wanted -= targets
                last = statement
    if wanted or last is None:
        raise CannotRewrite(f"{', '.join(sorted(wanted))} is not made in {owner.name.value}.__init__")
    for other in find_all(source.module, cst.ClassDef):
        own = source.method(other, "__init__")
        if own is None or owner.name.value not in {dotted(base.value) for base in other.bases}:
            continue
        calls = [source.code(call.func) for call in find_all(own, cst.Call)]
        if not any(c.startswith(("super(", f"{owner.name.value}.")) and c.endswith(".__init__") for c in calls):
            raise CannotRewrite(f"{other.name.value} is made without {owner.name.value}.__init__")
    return last


def _calls(source: SourceFile, owner: cst.ClassDef, names: list[str]) -> tuple[cst.FunctionDef, list[cst.Call]]:
    """The one method that calls every layer exactly once."""
    found: list[tuple[cst.FunctionDef, list[cst.Call]]] = []
    for function in methods(owner):
        if function.name.value == "__init__":
            continue
        calls = find_all(function, cst.Call)
        mine = [[c for c in calls if dotted(c.func) == f"self.{name}"] for name in names]
        if any(mine):
            if any(len(m) != 1 for m in mine):
                raise CannotRewrite(f"{owner.name.value}.{function.name.value} does not call each layer exactly once")
            found.append((function, [m[0] for m in mine]))
    if len(found) != 1:
        raise CannotRewrite(f"the layers of {owner.name.value} are called in {len(found)} methods")
    return found[0]


def _one_place(
    source: SourceFile, function: cst.FunctionDef, calls: list[cst.Call]
) -> tuple[cst.BaseExpression, Sequence[Statement]]:
    """The layers' common input, and the statements of the block in which all are called."""
    inputs = []
    for call in calls:
        if len(call.args) != 1 or call.args[0].star or (call.args[0].keyword and call.args[0].keyword.value != "input"):
            raise CannotRewrite("a layer is called with more than its input")
        inputs.append(call.args[0].value)
    if len({source.code(i) for i in inputs}) != 1 or not dotted(inputs[0]):
        raise CannotRewrite("the layers' input is not one plain name")
    body = Block(source, function, source.lines(calls[0])[0]).body
    at = [i for call in calls for i, s in enumerate(body) if holds(s, call)]
    if len(at) < len(calls):
        raise CannotRewrite("the layers are called in different blocks")
    name = dotted(inputs[0]).split(".")[0]
    for statement in body[min(at) : max(at) + 1]:
        if not isinstance(statement, cst.SimpleStatementLine):
            raise CannotRewrite("the layers are called in different blocks")
        if any(
            isinstance(n, (cst.Lambda, cst.BaseComp, cst.IfExp, cst.BooleanOperation)) and _holds(n, calls)
            for n in walk(statement)
        ):
            raise CannotRewrite("a layer is not called every time")
        # `x = self.norm(self.k(x))` in the last of them is fine: all calls have read x by then
        if name in source.stores(statement) and statement is not body[max(at)]:
            raise CannotRewrite(f"{name} changes between the calls")
        if any(isinstance(n, cst.AugAssign) and dotted(n.target) == name for n in walk(statement)):
            raise CannotRewrite(f"{name} changes between the calls")
    return inputs[0], body


def _holds(node: cst.CSTNode, calls: list[cst.Call]) -> bool:
    return any(holds(node, call) for call in calls)


def _attribute(source: SourceFile, owner: cst.ClassDef, names: list[str]) -> str:
    """`packed_qkv` would be a guess at what they are; the names themselves are not."""
    taken = {n.attr.value for n in find_all(owner, cst.Attribute)}
    return FreshNames(taken)("packed_" + "_".join(names))
