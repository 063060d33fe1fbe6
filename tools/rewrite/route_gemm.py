"""Say how matrix products and convolutions choose their kernels when the outermost module is made: by TunableOp, by
measuring each shape of a layer, or by the library's own search.

An `__init__` that returns early stays as it is, and so does one in which that was said already.
"""

from __future__ import annotations

import re
from pathlib import Path

import libcst as cst

from tools.candidate import Site
from tools.observation import Observation
from tools.rewrite import CannotRewrite
from tools.rewrite import ops_package as ops
from tools.rewrite.ops_package import Asset, is_used, use
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import find_all, statements

_CONVOLUTION = re.compile(r"^aten::.*conv(?!er)")
_PRODUCT = re.compile(r"^(aten|mkldnn|mkl)::.*(linear|mm|matmul|conv(?!er))")


def convolution_share(observation: Observation) -> float:
    """What convolutions take of a call, from 0 to 1."""
    return sum(row.share for row in observation.ops.rows if _CONVOLUTION.match(row.name))


def product_share(observation: Observation) -> float:
    """The same of matrix products and convolutions: all that weights are multiplied with."""
    return sum(row.share for row in observation.ops.rows if _PRODUCT.match(row.name))


def tune(tree: Path, site: Site) -> dict[str, str]:
    """New file contents, for a site of `compile_model.find`. Raises: CannotRewrite."""
    return _called_in_init(tree, site, ops.TUNABLE_GEMM, "")


def route(tree: Path, site: Site) -> dict[str, str]:
    """The same: each shape of a linear layer in the way that is measured to be the fastest, aiter's among them."""
    return _called_in_init(tree, site, ops.ROUTED_LINEAR, "self")


def pad(tree: Path, site: Site) -> dict[str, str]:
    """The same: the rows of weights kept apart, so that they do not all begin in the same channel of the memory."""
    return _called_in_init(tree, site, ops.PADDED_LINEAR, "self")


def find_convolutions(tree: Path, site: Site) -> dict[str, str]:
    """The same: each new shape of a convolution is measured once (MIOpen's find step, cuDNN's benchmark mode)."""
    return _called_in_init(tree, site, ops.CONV_FIND, "")


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
