"""`agent isa`: show what Triton's compiler makes of a kernel for AMD architectures, or whether two kernels are one.

Needs no GPU. The file is compiled in a sandbox, with the target's interpreter.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.config import active_python, program
from agent.errors import WrongUsage
from agent.reporting import isa_page
from sandbox import choose
from sandbox.choose import Agree, Wanted
from tools.errors import KernelNotCompiled, NoSuchKernel
from tools.hardware import ARCHITECTURES
from tools.isa import compile as compiling
from tools.isa import same_code
from tools.isa.answer import Description
from tools.isa.compile import Compilations, Compiled, Compiler, Source
from tools.plain_text import plain
from tools.tree_removal import passable_folder

DEFAULT_ARCH = "gfx942"


def run(arguments: argparse.Namespace, agree: Agree) -> int:
    """Print what was found; returns 0, also when the code of two files differs.

    `agree` is asked before a file is loaded uncontained. Raises: NoSuchKernel, KernelNotCompiled, UnknownArchitecture,
    WrongUsage, SandboxError.
    """
    names = architectures(arguments.arch)
    source = _source(arguments, arguments.file)
    other = _source(arguments, arguments.diff) if arguments.diff else None
    if other is not None and source.launch is not None:
        raise WrongUsage(
            "--diff needs a description of both kernels, and a launch is one of the first only.",
            hint="Describe them by annotations or with --signature.",
        )
    with _compiler(arguments, agree) as compiler:
        found = _compiled(compiler, source, names)
        if other is not None:
            return _told_apart(found, _compiled(compiler, other, names), as_json=arguments.json)
    print(json.dumps(isa_page.as_json(found), indent=1) if arguments.json else "\n".join(isa_page.lines(found)))
    _all_compiled(found)
    return 0


def architectures(given: list[str] | None) -> list[str]:
    """From repeated and comma-separated values. Raises: UnknownArchitecture, which lists the known."""
    names = [name.strip() for value in given or [DEFAULT_ARCH] for name in value.split(",") if name.strip()]
    if names == ["all"]:
        return list(ARCHITECTURES)
    return list(dict.fromkeys(compiling.known(name).name for name in names or [DEFAULT_ARCH]))


def file_and_kernel(text: str) -> tuple[Path, str | None]:
    """Of `FILE[:kernel]`. Raises: NoSuchKernel when there is no such file."""
    file, colon, kernel = text.rpartition(":")
    path, name = (Path(file), kernel) if colon and not Path(text).exists() else (Path(text), None)
    if not path.is_file():
        raise NoSuchKernel(f"There is no file {plain(path)}.", hint="Give FILE, or FILE:kernel where it holds several.")
    return path, name


def _source(arguments: argparse.Namespace, text: str) -> Source:
    file, kernel = file_and_kernel(text)
    if arguments.launch is not None and not arguments.launch.is_file():
        raise WrongUsage(f"--launch: there is no file {arguments.launch}.")
    signature = _signature(arguments.signature) if arguments.signature else None
    return Source(file, kernel, arguments.launch, signature, every_config=arguments.all_configs)


def _signature(path: Path) -> dict[str, Any]:
    try:
        return Description.model_validate_json(path.read_bytes()).model_dump(exclude_unset=True)
    except OSError as error:
        raise WrongUsage(f"--signature: {path} cannot be read ({error.strerror}).") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"--signature: {path}{': ' if where else ''}{plain(where)}: {plain(first['msg'])}"
        raise WrongUsage(message, hint="docs/isa.md shows one.") from error


@contextmanager
def _compiler(arguments: argparse.Namespace, agree: Agree) -> Iterator[Compiler]:
    python = str(program(arguments.python or active_python()))
    with passable_folder("ratchet-isa-") as folder:
        wanted = Wanted(python, folder / "sandbox", (folder,))
        automatic = arguments.sandbox == "auto"
        sandbox = choose.choose(wanted, agree) if automatic else choose.make(arguments.sandbox, wanted)
        try:
            yield Compiler(sandbox, python, folder / "work")
        finally:
            sandbox.reap()


def _compiled(compiler: Compiler, source: Source, names: list[str]) -> Compilations:
    """Raises: NoSuchKernel, KernelNotCompiled when nothing was compiled at all."""
    if sys.stderr.isatty():
        print(f"compiling {plain(source.file.name)} for {', '.join(names)} …", file=sys.stderr, flush=True)
    found = compiler.compile(source, names)
    if found.refusal is not None:
        raise found.refusal.error(source.file.name)
    return found


def _all_compiled(found: Compilations) -> None:
    """Raises: KernelNotCompiled for the first that failed; the others have been shown."""
    failed = [one for one in found.results if one.error]
    if failed:
        first = failed[0]
        raise KernelNotCompiled(
            f"{plain(first.variant.kernel)} does not compile for {first.architecture.name}: {first.error}",
            hint="The message is that of Triton's compiler; the line is one of the kernel.",
        )


def _told_apart(first: Compilations, second: Compilations, *, as_json: bool) -> int:
    _all_compiled(first)
    _all_compiled(second)
    pairs = zip(_by_architecture(first), _by_architecture(second), strict=True)
    said = {ours.architecture.name: difference(ours, theirs) for ours, theirs in pairs}
    if as_json:
        print(json.dumps({name: {"same": each.same, "counts": each.counts} for name, each in said.items()}, indent=1))
    else:
        print("\n".join(isa_page.difference_lines(said)))
    return 0


def difference(ours: Compiled, theirs: Compiled) -> same_code.Difference:
    launches = [(one.outcome.num_warps, one.outcome.shared) for one in (ours, theirs)]
    return same_code.compare(ours.assembly, theirs.assembly, launch=(launches[0], launches[1]))


def _by_architecture(found: Compilations) -> list[Compiled]:
    """One for each: of the first variant."""
    return list({one.architecture.name: one for one in reversed(found.results)}.values())[::-1]
