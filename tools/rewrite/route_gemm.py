"""Switch TunableOp on when the outermost module is made. Only ROCm has kernels of two libraries to choose from.

It refuses nothing more than `__init__` that returns early; off ROCm the call does nothing.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import TUNABLE_GEMM, is_used, use
from tools.rewrite.source import SourceFile
from tools.rewrite.syntax import find_all, statements


def rewrite(tree: Path, site: Site) -> dict[str, str]:
    """New file contents, for a site of `compile_model.find`. Raises: CannotRewrite."""
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    init = source.method(owner, "__init__")
    if is_used(source, TUNABLE_GEMM):
        raise CannotRewrite("TunableOp is on already")
    if init is None or find_all(init, cst.Return):
        raise CannotRewrite(f"{owner.name.value} has no __init__ of its own that runs to its end")
    used = use(source, TUNABLE_GEMM, site.detail["module"])
    line = cst.parse_statement(f"{used.name}()", source.module.config_for_parsing)
    source.insert(line, after=statements(init)[-1])
    return {**used.files, source.path: source.result()}
