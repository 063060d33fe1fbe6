"""Let each shape of fused attention be measured: calls of torch's function become calls of `routed_attention`.

What is not written as a call of `scaled_dot_product_attention` by its own name stays.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import ROUTED_ATTENTION, use
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.sites import at_frame, largest_first

_FUSED = "torch.nn.functional.scaled_dot_product_attention"


def find(observation: Observation) -> list[Site]:
    """One site for each place where attention is one call of torch's."""
    rows = [row for row in observation.attention if row.fused and row.frames]
    return largest_first(at_frame("fused_attention", row.frames[0], row.share, count=row.count) for row in rows)


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    for call in source.at(site.line, source.function_at(site.line), cst.Call):
        if source.qualified(call.func) == _FUSED:
            ours = use(source, ROUTED_ATTENTION, site)
            source.replace(call.func, cst.Name(ours))
            return source.changes()
    raise CannotRewrite(f"{source.path}:{site.line} does not call {_FUSED} by its name")
