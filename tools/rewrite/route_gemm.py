"""Say where matrix products go when the outermost module is made: to TunableOp, or to one of the device's libraries.

It refuses nothing more than `__init__` that returns early, and what was said already.
"""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import BLAS_LIBRARY, TUNABLE_GEMM, Asset, is_used, use
from tools.rewrite.source import SourceFile
from tools.rewrite.syntax import find_all, statements


def tune(tree: Path, site: Site) -> dict[str, str]:
    """New file contents, for a site of `compile_model.find`. Raises: CannotRewrite."""
    return _called_in_init(tree, site, TUNABLE_GEMM, "")


def prefer(tree: Path, site: Site, library: str) -> dict[str, str]:
    """The same; `library` is one that `torch.backends.cuda.preferred_blas_library` knows."""
    return _called_in_init(tree, site, BLAS_LIBRARY, f'"{library}"')


def _called_in_init(tree: Path, site: Site, asset: Asset, arguments: str) -> dict[str, str]:
    source = SourceFile(tree, site.file)
    owner = source.class_named(site.module_class, site.line)
    init = source.method(owner, "__init__")
    if is_used(source, asset):
        raise CannotRewrite(f"{asset.symbol} is called already")
    if init is None or find_all(init, cst.Return):
        raise CannotRewrite(f"{owner.name.value} has no __init__ of its own that runs to its end")
    used = use(source, asset, site.detail["module"])
    line = cst.parse_statement(f"{used.name}({arguments})", source.module.config_for_parsing)
    source.insert(line, after=statements(init)[-1])
    return {**used.files, source.path: source.result()}
