"""Give a linear layer and the activation after it to one matrix product, which applies both before it writes.

It refuses what is not called in one block, a layer's result that something else reads, and layers given more than one
argument.
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
from tools.rewrite.reading.spelling import method
from tools.rewrite.reading.syntax import assigned, dotted, find_all, statements

_FUNCTIONS = {"relu": ("relu", []), "gelu_tanh": ("gelu", ["approximate='tanh'"])}  # (name, further arguments)


def find(observation: Observation) -> list[Site]:
    """Linear layers with a bias whose result only an activation reads."""
    found = [
        Site(
            kind="epilogue",
            file=row.frames[0].file,
            line=row.frames[0].line,
            line_end=max(row.frames[0].line, row.activation_line),
            module_class=row.frames[0].owner,
            third_party=row.frames[0].third_party,
            share=row.share,
            detail={
                "module": row.frames[0].module,
                "attribute": row.attribute,
                "activation": row.activation,
                "activation_attribute": row.activation_attribute,
                "activation_line": row.activation_line,
                "count": row.count,
            },
        )
        for row in observation.activated
        if row.frames
    ]
    return sorted(found, key=lambda site: -(site.share or 0))


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    function = source.function_at(site.line)
    activation, given = _activation(source, function, site)
    layer, owner = _layer(source, function, site), site.detail["activation_attribute"]
    used = use(source, ACTIVATED_LINEAR, site.detail["module"])
    by = f"self.{owner}" if owner else f'"{site.detail["activation"]}"'
    text = f"{used.name}({dotted(layer.func)}, {source.code(layer.args[0].value)}, {by})"
    fused = cst.parse_expression(text, source.module.config_for_parsing)
    if given is layer:
        source.replace(activation, fused)
    else:
        _in_turn(source, function, activation, given, layer, fused)
    return {**used.files, source.path: source.result()}


def _in_turn(
    source: SourceFile,
    function: cst.FunctionDef,
    activation: cst.Call,
    given: cst.BaseExpression,
    layer: cst.Call,
    fused: cst.BaseExpression,
) -> None:
    """`h = layer(x)`, and later `act(h)`: the first computes both, the second hands h on. Raises: CannotRewrite."""
    block = Block(source, function, source.lines(activation)[0])
    at = block.index(activation)
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
    if again and taken is not None and taken[1] is activation:
        source.replace(block.body[at])
    else:
        source.replace(activation, given)
    source.replace(layer, fused)


def _is_read_later(source: SourceFile, function: cst.FunctionDef, block: Block, name: str, at: int) -> bool:
    if block.body is statements(function):
        return any(name in source.loads(statement) for statement in block.body[at + 1 :])
    return sum(n.value == name for n in find_all(function, cst.Name)) != 2  # a loop may come back to it


def _layer(source: SourceFile, function: cst.FunctionDef, site: Site) -> cst.Call:
    wanted = f"self.{site.detail['attribute']}"
    for call in find_all(function, cst.Call):
        first, last = source.lines(call)
        plain = len(call.args) == 1 and call.args[0].keyword is None and not call.args[0].star
        if plain and first <= site.line <= last and dotted(call.func) == wanted:
            return call
    raise CannotRewrite(f"{wanted} is not called with one tensor at {source.path}:{site.line}")


def _activation(source: SourceFile, function: cst.FunctionDef, site: Site) -> tuple[cst.Call, cst.BaseExpression]:
    """The call of the activation, and what it is given. Raises: CannotRewrite."""
    owner, line = site.detail["activation_attribute"], site.detail["activation_line"]
    name, more = _FUNCTIONS[site.detail["activation"]]
    for call in find_all(function, cst.Call):
        first, last = source.lines(call)
        if not first <= line <= last:
            continue
        if owner and dotted(call.func) == f"self.{owner}" and len(call.args) == 1 and not call.args[0].star:
            return call, call.args[0].value
        found = None if owner else method(source, call, name)
        if found is not None and [_plain(source, given) for given in call.args[found[2] :]] == more:
            return call, found[0]
    raise CannotRewrite(f"no activation is called at {source.path}:{line}")


def _plain(source: SourceFile, given: cst.Arg) -> str:
    text = source.code(given.value).replace('"', "'")
    return f"{given.keyword.value}={text}" if given.keyword is not None else text
