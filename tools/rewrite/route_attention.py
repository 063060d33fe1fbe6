"""Let each shape of fused attention be measured: calls of torch's function become calls of `routed_attention`.

It refuses what is not written as a call of `scaled_dot_product_attention` by its own name.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import ROUTED_ATTENTION, use
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import find_all

_FUSED = "torch.nn.functional.scaled_dot_product_attention"


def find(observation: Observation) -> list[Site]:
    """One site for each place where attention is one call of torch's."""
    found = []
    for record in observation.attention:
        frame = record.frames[0] if record.frames else None
        if not record.fused or frame is None:
            continue
        found.append(
            Site(
                kind="fused_attention",
                file=frame.file,
                line=frame.line,
                line_end=frame.line,
                module_class=frame.owner,
                third_party=frame.third_party,
                share=record.share,
                detail={
                    "module": frame.module,
                    "function": frame.function,
                    "count": record.count,
                    "cases": len(record.cases),
                },
            )
        )
    return sorted(found, key=lambda site: -(site.share or 0))


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    for call in find_all(source.function_at(site.line), cst.Call):
        first, last = source.lines(call)
        if first <= site.line <= last and source.qualified(call.func) == _FUSED:
            used = use(source, ROUTED_ATTENTION, site.detail["module"])
            source.replace(call.func, cst.Name(used.name))
            return {**used.files, source.path: source.result()}
    raise CannotRewrite(f"{source.path}:{site.line} does not call {_FUSED} by its name")
