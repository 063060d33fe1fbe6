"""Give a linear layer and the activation after it to one matrix product, which applies both before it writes.

Both stay where they are not called in one block, where something else reads the layer's result, and where the layer is
given more than one argument.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import ACTIVATED_LINEAR, use
from tools.rewrite.reading.flow import Block
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.spelling import activation
from tools.rewrite.reading.syntax import assigned, dotted, find_all, statements
from tools.rewrite.sites import at_frame, largest_first


def find(observation: Observation) -> list[Site]:
    """Linear layers with a bias whose result only an activation reads."""
    names = ("attribute", "activation", "activation_attribute", "activation_line", "count")
    return largest_first(
        at_frame(
            "epilogue",
            row.frames[0],
            row.share,
            line_end=max(row.frames[0].line, row.activation_line),
            **{name: getattr(row, name) for name in names},
        )
        for row in observation.activated
        if row.frames
    )


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.line)
    applied, given = _activation(source, function, site)
    layer = source.plain_call(function, f"self.{site.detail['attribute']}", site.line)
    owner = site.detail["activation_attribute"]
    used = use(source, ACTIVATED_LINEAR, site.detail["module"])
    by = f"self.{owner}" if owner else f'"{site.detail["activation"]}"'
    text = f"{used.name}({dotted(layer.func)}, {source.code(layer.args[0].value)}, {by})"
    fused = source.expression(text)
    if given is layer:
        source.replace(applied, fused)
    else:
        _in_turn(source, function, applied, given, layer, fused)
    return {**used.files, source.path: source.result()}


def _in_turn(
    source: SourceFile,
    function: cst.FunctionDef,
    applied: cst.Call,
    given: cst.BaseExpression,
    layer: cst.Call,
    fused: cst.BaseExpression,
) -> None:
    """`h = layer(x)`, and later `act(h)`: the first computes both, the second hands h on. Raises: CannotRewrite."""
    block = Block(source, function, source.lines(applied)[0])
    at = block.index(applied)
    found = block.definition(given.value, at) if isinstance(given, cst.Name) else None
    if found is None or not isinstance(given, cst.Name) or found.expr is not layer or found.when is not None:
        raise CannotRewrite("what the activation is given is not plainly the layer's result")
    value = assigned(block.body[found.at])
    if value is None or value[1] is not layer or value[0] != [given.value]:
        raise CannotRewrite("the layer's result is not plainly assigned")
    between = [given.value in source.loads(statement) for statement in block.body[found.at + 1 : at]]
    if any(between) or not block.is_stable({given.value}, found.at + 1, at):
        raise CannotRewrite(f"{given.value} is read or changed before its activation")
    name, taken = given.value, assigned(block.body[at])
    again = taken is not None and taken[0] == [name]
    if sum(n.value == name for n in find_all(block.body[at], cst.Name)) != 1 + again:
        raise CannotRewrite(f"{name} is read beside its activation")
    if not again and _is_read_later(source, function, block, name, at):
        raise CannotRewrite(f"{name} is read after its activation")
    if again and taken is not None and taken[1] is applied:
        source.replace(block.body[at])
    else:
        source.replace(applied, given)
    source.replace(layer, fused)


def _is_read_later(source: SourceFile, function: cst.FunctionDef, block: Block, name: str, at: int) -> bool:
    if block.body is statements(function):
        return any(name in source.loads(statement) for statement in block.body[at + 1 :])
    return sum(n.value == name for n in find_all(function, cst.Name)) != 2  # a loop may come back to it


def _activation(source: SourceFile, function: cst.FunctionDef, site: Site) -> tuple[cst.Call, cst.BaseExpression]:
    """The call of the activation, and what it is given. Raises: CannotRewrite."""
    owner, line = site.detail["activation_attribute"], site.detail["activation_line"]
    for call in source.at(line, function, cst.Call):
        if owner and dotted(call.func) == f"self.{owner}" and len(call.args) == 1 and not call.args[0].star:
            return call, call.args[0].value
        found = None if owner else activation(source, call)
        if found is not None and found[1] == site.detail["activation"]:
            return call, found[0]
    raise CannotRewrite(f"no activation is called at {source.path}:{line}")
