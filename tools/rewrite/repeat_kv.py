"""Multiply with the key and value heads as they are, instead of copying each of them for every query head it serves.

The two products of attention by hand become `grouped_matmul`. It refuses when anything else reads the repeated heads.
"""

from __future__ import annotations

from pathlib import Path

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite, attention
from tools.rewrite.ops_package import GROUPED_MATMUL, use
from tools.rewrite.reading import spelling
from tools.rewrite.reading.source import SourceFile


def find(observation: Observation) -> list[Site]:
    """The attention sites in whose function heads were seen to be repeated."""
    found = []
    for site in attention.find(observation):
        frames = [(r, f) for r in observation.repeats for f in r.frames if f.file == site.file]
        records = {id(r): r for r, f in frames if f.first_line <= site.line and f.owner == site.module_class}
        if records:
            share = sum(r.share for r in records.values())
            found.append(site.model_copy(update={"kind": "repeat_kv", "share": share}))
    return found


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    found, _ = attention.matched(source, site)
    repeats = attention.repeated_heads(found, site)
    if repeats is None:
        raise CannotRewrite("the repeated heads are read elsewhere too, or are not made in the same block")
    ours = use(source, GROUPED_MATMUL, site)
    for node in (found.product, found.node):
        operands = spelling.product(source, node, ours)
        if operands is None:
            raise CannotRewrite("the products are not plain matrix products")
        text = f"{ours}({', '.join(source.code(operand) for operand in operands)})"
        source.replace(node, source.expression(text))
    for repeat in repeats:
        name = source.code(found.keys if repeat is repeats[0] else found.values)
        if repeat.source != name:
            source.replace(found.block.body[repeat.at], *source.statements(f"{name} = {repeat.source}"))
        else:
            source.replace(found.block.body[repeat.at])
    return source.changes()
