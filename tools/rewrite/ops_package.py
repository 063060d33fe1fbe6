"""Bring a runtime file of ours into the target: the package `ratchet_ops` beside the module that uses it.

Does not write over a package of that name that is not ours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from itertools import takewhile
from pathlib import PurePosixPath

import libcst as cst

from tools.candidate import Site
from tools.rewrite import CannotRewrite, overlay
from tools.rewrite.reading.importers import other_way
from tools.rewrite.reading.source import SourceFile
from tools.rewrite.reading.syntax import imported_names, is_docstring, names_in, simple_statements
from tools.rewrite.runtime_files import PACKAGE

MARK = "# Ratchet: "
_INIT = f"""\
{MARK}{PACKAGE}. What accepted changes need at run time; each file says what it does.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""


@dataclass(frozen=True)
class Asset:
    """A runtime file of a skill pack, and the one name that a target imports from it."""

    pack: str
    module: str
    symbol: str

    def files(self, beside: Iterable[str] = ()) -> dict[str, str]:
        """Its text and that of every file of the pack that it imports, by name.

        What is imported within a `try` connects two assets: it comes with the second, where `beside` names the first.
        """
        found = self._with_imports(self.module)
        pack = {name: text for name in beside if (text := self._text(name))} | found
        for name in {name for text in found.values() for name in _siblings(text, tried=True)}:
            if sum(name in _siblings(text, tried=True) for text in pack.values()) > 1:
                found |= self._with_imports(name)
        return found

    def _with_imports(self, module: str) -> dict[str, str]:
        found, missing = dict[str, str](), [module]
        while missing:
            name = f"{missing.pop()}.py"
            if name not in found:
                found[name] = self._text(name)
                missing += _siblings(found[name])
        return found

    def _text(self, name: str) -> str:
        """Empty for what is no file of the pack."""
        file = resources.files("skills") / self.pack / "assets" / name
        return file.read_text(encoding="utf-8") if file.is_file() else ""


def _siblings(text: str, *, tried: bool = False) -> list[str]:
    """The modules beside it that a module imports, either within a `try` or elsewhere."""
    parts = [part for part in ast.parse(text).body if isinstance(part, ast.Try) == tried]
    nodes = [n for part in parts for n in ast.walk(part) if isinstance(n, ast.ImportFrom) and n.level == 1]
    return [name for n in nodes for name in ([n.module] if n.module else [alias.name for alias in n.names])]


CONSTANT = Asset("amd-kernel-optimization", "constants", "constant")
PACKED_LINEAR = Asset("amd-kernel-optimization", "packed_linear", "PackedLinear")
GROUPED_MATMUL = Asset("amd-kernel-optimization", "grouped_matmul", "grouped_matmul")
GRAPHED = Asset("amd-kernel-optimization", "graphed", "graphed")
CONV_FIND = Asset("amd-kernel-optimization", "conv_find", "find_convolutions")
PADDED_LINEAR = Asset("amd-kernel-optimization", "padded_linear", "pad_linears")
ROUTED_LINEAR = Asset("amd-kernel-optimization", "routed_linear", "route_linears")
ROUTED_ATTENTION = Asset("amd-kernel-optimization", "routed_attention", "routed_attention")
TUNABLE_GEMM = Asset("amd-kernel-optimization", "tunable_gemm", "tune_gemm")
GROUPED_EXPERTS = Asset("amd-kernel-optimization", "grouped_experts", "grouped_experts")
PADDING = Asset("amd-kernel-optimization", "padding", "without_padding")
FROM_SHAPES = Asset("amd-kernel-optimization", "from_shapes", "from_shapes")
REMEMBERED = Asset("amd-kernel-optimization", "remembered", "remembered")
IS_EXACTLY = Asset("triton-on-rocm", "exactly", "is_exactly")
RMS_NORM = Asset("triton-on-rocm", "rms_norm", "rms_norm")
LAYER_NORM = Asset("triton-on-rocm", "layer_norm", "layer_norm")
ADD_RMS_NORM = Asset("triton-on-rocm", "rms_norm", "add_rms_norm")
ADD_LAYER_NORM = Asset("triton-on-rocm", "layer_norm", "add_layer_norm")
ROTARY = Asset("triton-on-rocm", "rotary", "rotary")
SOFTMAX_TOPK = Asset("triton-on-rocm", "softmax_topk", "softmax_topk")
GATED_MUL = Asset("triton-on-rocm", "gated_mul", "gated_mul")


def use(source: SourceFile, asset: Asset, site: Site) -> str:
    """Import the asset in `source` and add the files that it needs (edits). The name that it has there.

    By what the target imports the site's file as, with a dot in it the import is relative. Raises: CannotRewrite.
    """
    module_name = site.detail["module"]
    folder, prefix = _place(source, module_name)
    if other := "" if overlay.root_of(source.path) else other_way(source.tree, source.path, "." in module_name):
        raise CannotRewrite(f"{source.path} is imported as {module_name} here and in another way in {other}")
    init = source.tree / folder / "__init__.py"
    if (source.tree / folder).exists() and (
        not init.is_file() or not init.read_text(encoding="utf-8", errors="replace").startswith(MARK)
    ):
        raise CannotRewrite(f"{folder} is there already and is not ours")
    there = [path.name for path in (source.tree / folder).glob("*.py")]
    written = {**asset.files(there), "__init__.py": _INIT}
    source.files |= {str(folder / name): text for name, text in written.items()}
    name = is_used(source, asset)
    if not name:
        name = asset.symbol if asset.symbol not in names_in(source.module) else f"ratchet_{asset.symbol}"
        alias = "" if name == asset.symbol else f" as {name}"
        _add_import(source, f"from {prefix}{asset.module} import {asset.symbol}{alias}")
    return name


def _place(source: SourceFile, module_name: str) -> tuple[PurePosixPath, str]:
    """The folder of the package, and how its modules begin where this file imports them.

    Beside the file; for a copy of a library module, which is imported from elsewhere, in the package of such copies.
    """
    if root := overlay.root_of(source.path):
        return PurePosixPath(root) / PACKAGE, f"{overlay.PACKAGE}.{PACKAGE}."
    return PurePosixPath(source.path).parent / PACKAGE, f"{'.' if '.' in module_name else ''}{PACKAGE}."


def is_used(source: SourceFile, asset: Asset) -> str:
    """The name the asset has in this file, empty when it is not imported."""
    wanted = {f"{prefix}{PACKAGE}.{asset.module}.{asset.symbol}" for prefix in ("", ".", f"{overlay.PACKAGE}.")}
    return next((name for name, stands_for in source.imports.items() if stands_for in wanted), "")


def _add_import(source: SourceFile, text: str) -> None:
    """Insert one import line after the imports at the top of the file, or after its docstring (an edit)."""
    (line,) = source.statements(text)
    body = source.module.body
    top = [*takewhile(lambda each: not isinstance(each, (cst.FunctionDef, cst.ClassDef)), body)]
    imports = [each for each in top if imported_names(each) or simple_statements(each, cst.ImportFrom)]
    if imports or is_docstring(body[0]):
        source.insert(line, after=imports[-1] if imports else body[0])
    else:
        source.insert(line, before=body[0])
