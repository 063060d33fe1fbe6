"""How long kernels take to compile for each AMD architecture, by Triton on this machine's CPU.

Refuses to judge, and to contain: the kernels are those of this repository, or whoever runs this vouches for them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from pydantic import BaseModel, Field

from agent import environment
from agent.errors import WrongUsage
from agent.records import run_folder
from evals.result_file import ResultFile
from sandbox.local.provider import LocalSandbox
from tools.hardware import ARCHITECTURES
from tools.isa.compile import Compiler, Source

ROUNDS = 3


class CompileTimes(BaseModel):
    """One execution of `evals isa`; seconds of every compilation, by kernel and architecture."""

    date: datetime
    command: list[str]
    environment: environment.Environment
    triton: str = ""
    seconds: dict[str, dict[str, list[float]]] = Field(default_factory=dict)
    failed: list[str] = Field(default_factory=list)

    def page(self) -> str:
        host = self.environment.host
        lines = [
            "# Compiling kernels for AMD architectures",
            "",
            f"Measured {self.date:%Y-%m-%d} on {host.cpu_model}, {host.cpu_cores} cores, {host.os}, with Triton "
            f"{self.triton}. Command: `{' '.join(self.command)}`. Median of {ROUNDS} in seconds, each by a process of "
            "its own that compiles for all in this order; the first also warms it up.",
            "",
            f"| kernel | {' | '.join(ARCHITECTURES)} |",
            f"| --- |{' --- |' * len(ARCHITECTURES)}",
        ]
        for kernel, found in self.seconds.items():
            cells = [f"{median(found[name]):.2f}" if name in found else "" for name in ARCHITECTURES]
            lines.append(f"| {kernel} | {' | '.join(cells)} |")
        slowest = max((one for found in self.seconds.values() for each in found.values() for one in each), default=0.0)
        lines += ["", f"Slowest of all: {slowest:.2f} s.", *(f"Failed: {one}" for one in self.failed)]
        return "\n".join(lines) + "\n"


def run(kernels: Sequence[Path], results_dir: Path) -> int:
    """Measure and store; returns 0. Raises: WrongUsage."""
    if missing := [path for path in kernels if not path.is_file()]:
        raise WrongUsage(f"There is no file {missing[0]}.")
    found = CompileTimes(date=datetime.now(UTC), command=run_folder.this_command(), environment=environment.describe())
    file = ResultFile(results_dir, "isa-compile", found.date)
    with tempfile.TemporaryDirectory(prefix="ratchet-isa-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        sandbox = LocalSandbox(sys.executable, folder / "sandbox", owned=(folder,))
        compiler = Compiler(sandbox, sys.executable, folder / "work")
        for _ in range(ROUNDS):
            for path in kernels:
                _compile(compiler, path, found)
    file.write(found, found.page())
    print(f"{found.page()}\n{file}")
    return 0


def _compile(compiler: Compiler, path: Path, found: CompileTimes) -> None:
    made = compiler.compile(Source(path, every_kernel=True), list(ARCHITECTURES))
    if made.refusal is not None:
        found.failed.append(f"{path.name}: {made.refusal.told()}")
    found.triton = made.triton or found.triton
    for one in made.results:
        if one.error:
            found.failed.append(f"{one.variant.kernel} on {one.architecture.name}: {one.error}")
        else:
            times = found.seconds.setdefault(one.variant.kernel, {}).setdefault(one.architecture.name, [])
            times.append(round(one.outcome.seconds, 3))
