"""Swap attention by hand for torch's fused one. Never changes the mask, the scale or the dtype.

`is_causal` is used only where the source proves a square causal mask of one size, and then for more than one row
only: with a single row such a mask hides nothing, however many keys there are. Everything else stays `attn_mask`.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import CONSTANT, GROUPED_MATMUL, is_used
from tools.rewrite.reading.analysis import Analysis, Kind
from tools.rewrite.reading.attention_match import Attention, Mask, Matcher, Repeat, repeat_of
from tools.rewrite.reading.causal import causal, is_blocking, is_infinite
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import assigned, dotted, names_in
from tools.rewrite.sites import at_frame, largest_first


def find(observation: Observation) -> list[Site]:
    """One site for each place where attention was computed by hand."""
    found = []
    for record in observation.attention:
        if record.fused or not record.frames:
            continue
        frame = record.frames[0]
        owners = [row for row in observation.classes if row.name == frame.owner]
        children = owners[0].children if owners else {}
        site = at_frame(
            "attention",
            frame,
            record.share,
            cases=[case.model_dump(exclude_none=True) for case in record.cases],
            repeats=sorted({f.line for row in observation.repeats for f in row.frames if f.file == frame.file}),
            count=record.count,
            dropouts=[name for name, kind in children.items() if kind == "Dropout"],
        )
        found.append(site)
    return largest_first(found)


def matched(source: SourceFile, site: Site) -> tuple[Attention, Analysis]:
    """The attention of a site. Raises: CannotRewrite."""
    function = source.function_at(site.line)
    analysis = Analysis(source, function, site.detail["plain_attributes"])
    return Matcher(analysis, is_used(source, GROUPED_MATMUL), site.detail["dropouts"]).match(site.line), analysis


def variants(tree: Path, site: Site) -> list[str]:
    """Which rewrites make sense: with fewer key heads than query heads two, else one. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    found, _ = matched(source, site)
    repeated = repeated_heads(found, site) is not None
    fewer = any(case["scores_shape"][1:2] != case["key_heads"] for case in site.detail["cases"])
    return ["gqa", "repeated"] if repeated or fewer or _is_grouped(source, found) else ["plain"]


def rewrite(tree: Path, site: Site, variant: str = "plain") -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    found, analysis = matched(source, site)
    _check_observed(found, site)
    block = found.block
    repeats = repeated_heads(found, site) if variant == "gqa" else None
    text = _call(source, found, site, variant, repeats)
    source.replace(found.node, source.expression(text))
    changed = {found.at: names_in(source.edited(block.body[found.at])) - block.source.stores(block.body[found.at])}
    gone = {r.at for r in repeats} if repeats else set()
    for at in sorted({*gone, *block.dead(_candidates(source, found, analysis) - gone, changed)}):
        source.replace(block.body[at])
    return source.changes()


def _check_observed(found: Attention, site: Site) -> None:
    """What the source says must be what was seen, case by case."""
    for case in site.detail["cases"]:
        if case["dropout"]:
            raise CannotRewrite("dropout is active")
        if len(case["scores_shape"]) != 4:
            raise CannotRewrite("the product is not of (batch, heads, rows, columns)")
        if len(case["masks"]) > len(found.masks):
            raise CannotRewrite("a mask was seen that the source does not show")


def _call(source: SourceFile, found: Attention, site: Site, variant: str, repeats: tuple[Repeat, Repeat] | None) -> str:
    queries, keys, values = (source.code(n) for n in (found.queries, found.keys, found.values))
    if repeats is not None:
        keys, values = repeats[0].source, repeats[1].source
    for node in (found.queries, found.keys):
        found.check_stable(node, found.product_at, source.code(node))
    for repeat in repeats or ():
        if any(repeat.source in source.stores(statement) for statement in found.block.body[repeat.at + 1 : found.at]):
            raise CannotRewrite(f"{repeat.source} changes after its heads were repeated")
    if found.keys_are_transposed:
        keys = f"{keys}.transpose(-2, -1)"
    if variant == "repeated" and _is_grouped(source, found):
        keys, values = (f"{t}.repeat_interleave({queries}.shape[1] // {t}.shape[1], dim=1)" for t in (keys, values))
    arguments = [queries, keys, values, *_mask_arguments(source, found, site)]
    if found.dropout:
        arguments.append(f"dropout_p={found.dropout}")
    arguments.append(f"scale={_scale(source, found)}")
    if variant == "gqa":
        arguments.append("enable_gqa=True")
    return f"{_functional(source)}.scaled_dot_product_attention({', '.join(arguments)})"


def repeated_heads(found: Attention, site: Site) -> tuple[Repeat, Repeat] | None:
    """The statements that repeat the heads of the keys and of the values, when nothing else needs the repeated ones."""
    block, lines = found.block, site.detail["repeats"]
    if found.keys_are_transposed:
        return None
    keys = repeat_of(block, found.keys, found.product_at, lines)
    values = repeat_of(block, found.values, found.at, lines)
    if keys is None or values is None:
        return None
    for repeat, users in ((keys, {found.product_at}), (values, {found.at})):
        for name in block.source.stores(block.body[repeat.at]):
            readers = [i for i in range(repeat.at + 1, len(block.body)) if name in block.source.loads(block.body[i])]
            if not set(readers) <= users | {keys.at, values.at}:
                return None
    return keys, values


def _is_grouped(source: SourceFile, found: Attention) -> bool:
    grouped = is_used(source, GROUPED_MATMUL)
    return bool(grouped) and isinstance(found.node, cst.Call) and dotted(found.node.func) == grouped


# -- the mask


def _mask_arguments(source: SourceFile, found: Attention, site: Site) -> list[str]:
    if not found.masks:
        return []
    if len(found.masks) > 1:
        raise CannotRewrite("the scores are masked more than once")
    mask = found.masks[0]
    for node in (mask.ref.expr, *([mask.when] if mask.when is not None else [])):
        found.check_stable(node, mask.ref.at, "the mask")
    seen = [case["masks"][0] for case in site.detail["cases"] if case["masks"]]
    if mask.value is not None and not is_blocking(source, mask.value):
        raise CannotRewrite("what the mask fills in does not block")
    keep = {"added": "zero", "filled": "false", "kept": "true"}[mask.form]
    size = causal(found.block, mask.ref, keep) if mask.when is None else None
    proved = size is not None and found.block.is_stable({size}, mask.ref.at, found.at)
    if proved and seen and all(m["causal"] for m in seen) and _is_square(site):
        return [f"is_causal={size} > 1"]
    if mask.value is not None and not is_infinite(source, mask.value) and any(m["empty_rows"] for m in seen):
        raise CannotRewrite("the mask may hide whole rows, and what it fills in is finite")
    return [f"attn_mask={_as_argument(source, mask, site, source.code(found.queries))}"]


def _is_square(site: Site) -> bool:
    return all(case["scores_shape"][2] == case["scores_shape"][3] for case in site.detail["cases"])


def _as_argument(source: SourceFile, mask: Mask, site: Site, queries: str) -> str:
    node = mask.ref.expr
    text = source.code(node)
    if mask.form == "filled":
        text = _negated(source, node)
    elif mask.form == "added" and any(
        m.get("dtype", case["dtype"]) != case["dtype"] for case in site.detail["cases"] for m in case["masks"]
    ):
        text = f"{_atom(node, text)}.to({queries}.dtype)"
    if mask.when is None:
        return text
    condition = source.code(mask.when)
    return condition if text == condition else f"{text} if {condition} is not None else None"


def _negated(source: SourceFile, node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        operator = node.comparisons[0].operator
        swap = {cst.Equal: "!=", cst.NotEqual: "=="}.get(type(operator))
        if swap is not None:
            return f"{source.code(node.left)} {swap} {source.code(node.comparisons[0].comparator)}"
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return source.code(node.expression)
    return f"~{_atom(node, source.code(node))}"


def _atom(node: cst.BaseExpression, text: str) -> str:
    simple = isinstance(node, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or bool(node.lpar)
    return text if simple else f"({text})"


# -- the scale


def _scale(source: SourceFile, found: Attention) -> str:
    """The scale as source text."""
    text = ""
    for how, node, at in reversed(found.factors):
        found.check_stable(node, at, "the scale")
        factor = _atom(node, source.code(node))
        if text:
            text = f"{text} {'*' if how == 'mul' else '/'} {factor}"
        else:
            text = factor if how == "mul" else f"1.0 / {factor}"
    return text or "1.0"


# -- around the call


def _candidates(source: SourceFile, found: Attention, analysis: Analysis) -> set[int]:
    """Statements that may go once nobody reads what they make: those matched, and pure ones that only they needed."""
    block, candidates = found.block, set(found.visited)
    constant = is_used(source, CONSTANT)
    wanted = set().union(*(source.loads(block.body[i]) for i in candidates), names_in(found.node))
    for at in range(found.at - 1, -1, -1):
        value = assigned(block.body[at])
        if value is None or not wanted & set(value[0]) or at in candidates:
            continue
        held = isinstance(value[1], cst.Call) and bool(constant) and dotted(value[1].func) == constant
        if held or analysis.kind(value[1], analysis.facts[block.body[at]].kinds) is not Kind.DATA:
            candidates.add(at)
            wanted |= source.loads(block.body[at])
    return {i for i in candidates if i != found.at and isinstance(block.body[i], (cst.SimpleStatementLine, cst.If))}


def _functional(source: SourceFile) -> str:
    found = [name for name, origin in source.imports.items() if origin == "torch.nn.functional"]
    if not found and source.imports.get("torch") != "torch":
        raise CannotRewrite(f"{source.path} does not import torch")
    return found[0] if found else "torch.nn.functional"
