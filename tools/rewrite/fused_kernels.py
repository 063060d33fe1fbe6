"""Put one Triton kernel in the place of several operations of a function: a sum with its norm, rotary embeddings, the
top of a softmax.

The function's own operations stay for where a kernel does not apply, and for a norm of another class than the one whose
numbers were seen. It refuses sums that are not assigned or given to the norm as they are, values that something else
reads, and rotations by what a configuration may choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import libcst as cst

from tools.candidate import Site
from tools.observation import AddNorm, Observation, Rotary, TopK
from tools.rewrite import CannotRewrite
from tools.rewrite.kernels import norm_arguments
from tools.rewrite.ops_package import ADD_LAYER_NORM, ADD_RMS_NORM, IS_EXACTLY, ROTARY, SOFTMAX_TOPK, use
from tools.rewrite.reading.flow import Block
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.spelling import argument, integer, method
from tools.rewrite.reading.syntax import FreshNames, assigned, dotted, find_all, names_in, parameters, walk
from tools.rewrite.sites import at_frame, by_function, largest_first

NAMES = {
    "add_rms": "Sum and RMS normalisation",
    "add_layer": "Sum and layer normalisation",
    "rotary": "Rotary embedding",
    "softmax_topk": "Softmax and top-k",
}


def find(observation: Observation) -> list[Site]:
    """Places where a kernel could do what several operations do."""
    rows: list[tuple[str, AddNorm | Rotary | TopK]] = [(f"add_{row.kind}", row) for row in observation.add_norms]
    rows += [("softmax_topk", row) for row in observation.topk]
    found = [_site(kind, [row]) for kind, row in rows if row.frames]
    found += [_site("rotary", together) for together in by_function(observation.rotary)]  # of queries and keys at once
    return largest_first(found)


def _site(kind: str, rows: Sequence[AddNorm | Rotary | TopK]) -> Site:
    lines = sorted({row.frames[0].line for row in rows})
    detail = rows[0].model_dump(exclude={"frames", "share"}) | {"lines": lines, "count": sum(row.count for row in rows)}
    site = at_frame(kind, rows[0].frames[0], sum(row.share for row in rows), line_end=lines[-1], **detail)
    return site.model_copy(update={"line": lines[0]})


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    how = {"rotary": _rotary, "softmax_topk": _softmax_topk}.get(site.kind, _add_norm)
    return how(source, source.function_at(site.line), site)


# -- a sum and its norm


def _add_norm(source: SourceFile, function: cst.FunctionDef, site: Site) -> dict[str, str]:
    norm = f"self.{site.detail['attribute']}"
    if site.detail["hooked"]:
        raise CannotRewrite(f"{norm} has hooks")
    call = source.plain_call(function, norm, site.line)
    block = Block(source, function, site.line)
    at = block.index(call)
    if not isinstance(block.body[at], cst.SimpleStatementLine):  # a loop's condition is computed more than once
        raise CannotRewrite(f"{norm} is called in the head of a compound statement")
    exactly = use(source, IS_EXACTLY, site)
    ours = use(source, ADD_RMS_NORM if site.kind == "add_rms" else ADD_LAYER_NORM, site)
    arguments = norm_arguments(site.detail, norm)
    names = FreshNames(names_in(function))
    fused, normed = names("fused"), names("normed")
    given = call.args[0].value
    total, added = ("", given) if isinstance(given, cst.BinaryOperation) else _sum_before(block, given, at)
    lines, left, right = _operands(source, added, names)
    kernel = f"{fused} = {ours}({left}, {right}, {arguments})"
    lines += [f"{fused} = None", f'if {exactly}({norm}, "{site.detail["name"]}"):\n    {kernel}']
    if not total:
        lines.append(f"{normed} = {norm}({left} + {right}) if {fused} is None else {fused}[0]")
        for line in source.statements(*lines):
            source.insert(line, before=block.body[at])
    else:
        own = names("total")
        lines.append(f"if {fused} is None:\n    {own} = {left} + {right}\n    {fused} = {norm}({own}), {own}")
        before = next(s for s in block.body if any(n is added for n in walk(s)))
        source.replace_statement(before, *lines, f"{normed}, {total} = {fused}")
    source.replace(call, cst.Name(normed))
    return source.changes()


def _sum_before(block: Block, given: cst.BaseExpression, at: int) -> tuple[str, cst.BinaryOperation]:
    """(name of the sum, the addition that it was assigned) of what a norm is given. Raises: CannotRewrite."""
    found = block.assigned_to(given, at)
    if found is None or not isinstance(given, cst.Name) or not isinstance(found.expr, cst.BinaryOperation):
        raise CannotRewrite("the sum is not plainly assigned in the block in which its norm is called")
    if not block.is_stable({given.value}, found.at + 1, at):
        raise CannotRewrite("the sum is changed before its norm is called")
    return given.value, found.expr


def _operands(source: SourceFile, added: cst.BinaryOperation, names: FreshNames) -> tuple[list[str], str, str]:
    """(lines that compute what is no plain name, left, right). Raises: CannotRewrite when it is no addition."""
    if not isinstance(added.operator, cst.Add):
        raise CannotRewrite("what the norm is given is no sum")
    lines, found = [], []
    for operand, name in ((added.left, "left"), (added.right, "right")):
        text = source.code(operand)
        if not dotted(operand):
            lines.append(f"{(own := names(name))} = {text}")
            text = own
        found.append(text)
    return lines, found[0], found[1]


# -- rotary embeddings


def _rotary(source: SourceFile, function: cst.FunctionDef, site: Site) -> dict[str, str]:
    ours, fused = use(source, ROTARY, site), FreshNames(names_in(function))("fused")
    done, own = 0, source.stores(function) | {parameter.name.value for parameter in parameters(function)}
    for added in find_all(function, cst.BinaryOperation):
        seen = any(source.spans(added, line) for line in site.detail["lines"])
        if not isinstance(added.operator, cst.Add) or not seen:
            continue
        parts = _rotated(added.left, added.right) or _rotated(added.right, added.left)
        if parts is None:
            continue
        *tensors, turn = parts
        if turn.partition(".")[0] in own:  # `self` among them
            raise CannotRewrite(f"{turn} may be another function in another call")
        kernel = f"{fused} := {ours}({', '.join(tensors)})"
        text = f"({fused} if ({kernel}) is not None else {source.code(added)})"
        source.replace(added, source.expression(text))
        done += 1
    if not done:
        raise CannotRewrite(f"the rotary embedding at {source.path}:{site.line} is not one sum of two products")
    return source.changes()


def _rotated(plain: cst.BaseExpression, turned: cst.BaseExpression) -> tuple[str, str, str, str] | None:
    """(x, cos, sin, rotate_half) of `x * cos` and `rotate_half(x) * sin`."""
    for x, cos in _factors(plain):
        for rotated, sin in _factors(turned):
            if not isinstance(rotated, cst.Call) or len(rotated.args) != 1 or not dotted(rotated.func):
                continue
            names = dotted(x), dotted(cos), dotted(sin)
            if all(names) and dotted(rotated.args[0].value) == names[0]:
                return *names, dotted(rotated.func)
    return None


def _factors(node: cst.BaseExpression) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Multiply):
        return []
    return [(node.left, node.right), (node.right, node.left)]


# -- the top of a softmax


def _softmax_topk(source: SourceFile, function: cst.FunctionDef, site: Site) -> dict[str, str]:
    block = Block(source, function, site.line)
    for call in source.at(site.line, function, cst.Call):
        top = method(source, call, "topk")
        if top is None:
            continue
        scores, _, rest = top
        count = _count(call, rest)
        at = block.index(call)
        value = assigned(block.body[at])
        if count is None or value is None or value[1] is not call or len(value[0]) != 2:
            raise CannotRewrite("topk is not assigned to two names as it is")
        softmax, given, dtype = _softmax_before(source, function, block, scores, at)
        ours, names = use(source, SOFTMAX_TOPK, site), FreshNames(names_in(function))
        logits, fused = names("logits"), names("fused")
        plain = cast(cst.Call, call.deep_replace(scores, cast(cst.Call, softmax.deep_replace(given, cst.Name(logits)))))
        before = block.body[block.index(softmax)]
        source.replace_statement(before, f"{logits} = {source.code(given)}")
        kernel = f"{fused} = {ours}({logits}, {source.code(count)}{dtype})"
        chosen = f"{', '.join(value[0])} = {source.code(plain)} if {fused} is None else {fused}"
        source.replace_statement(block.body[at], kernel, chosen)
        return source.changes()
    raise CannotRewrite(f"no topk is at {source.path}:{site.line}")


def _count(call: cst.Call, rest: int) -> cst.BaseExpression | None:
    """How many are taken, when it is the largest of the last dimension in order."""
    keywords = {a.keyword.value for a in call.args if a.keyword is not None}
    dim = argument(call, rest + 1, "dim")
    plain = len([a for a in call.args if a.keyword is None])
    if keywords - {"k", "dim", "input"} or plain > rest + 2 or (dim is not None and integer(dim) != -1):
        return None
    return argument(call, rest, "k")


def _softmax_before(
    source: SourceFile, function: cst.FunctionDef, block: Block, scores: cst.BaseExpression, at: int
) -> tuple[cst.Call, cst.BaseExpression, str]:
    """The softmax over the last dimension that nothing but the topk reads, what it is of, and its dtype as a further
    argument, where it says one. Raises: CannotRewrite.
    """
    found = block.assigned_to(scores, at)
    if found is None or not isinstance(scores, cst.Name):
        raise CannotRewrite("the softmax is not assigned in the block of its topk")
    made = method(source, found.expr, "softmax")
    if made is None or not isinstance(found.expr, cst.Call) or integer(argument(made[1], made[2], "dim")) != -1:
        raise CannotRewrite("what topk is given is no softmax over the last dimension")
    dtypes = [a.value for a in found.expr.args if a.keyword is not None and a.keyword.value == "dtype"]
    if not all(dotted(dtype).startswith("torch.") for dtype in dtypes):  # what is the same wherever it is read
        raise CannotRewrite("the dtype of the softmax is not one of torch's by name")
    if sum(n.value == scores.value for n in find_all(function, cst.Name)) != 2:
        raise CannotRewrite(f"{scores.value} is used for more than its largest")
    return found.expr, made[0], "".join(f", dtype={source.code(dtype)}" for dtype in dtypes)
