"""Compile Triton kernels for AMD architectures in a sandbox, and read what came out.

A kernel that does not compile is a result; only a sandbox that broke is an exception.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sandbox.contract import Command, Ended, Limits, Process, Sandbox
from tools.errors import UnknownArchitecture
from tools.hardware import ARCHITECTURES, DEVICES, Architecture
from tools.isa import layouts, machine_code, sources
from tools.isa.advice import Advice, Facts, advise
from tools.isa.answer import Doing, Outcome, Plan, Refusal, Variant
from tools.isa.layouts import Layouts
from tools.isa.machine_code import MachineCode
from tools.judging.open_referee import copy_guest
from tools.judging.tensors import BadTensorFile, opened
from tools.occupancy import Need, Occupancy, occupancy
from tools.plain_text import plain
from tools.program_environment import environment
from tools.tree_removal import passable_folder

COMPILE_S = 120.0  # of one kernel for one architecture, which takes one to three seconds, or to load the file
_LOOK_S = 0.25
LONGEST_TEXT = 16 << 20
_LONGEST_JSON = 4 << 20
_Answer = TypeVar("_Answer", bound=BaseModel)
_Key = tuple[int, str]  # number of the variant, architecture


@dataclass(frozen=True)
class Source:
    """Which kernels to compile, and how they are described."""

    file: Path
    kernel: str | None = None  # the only one there is
    launch: Path | None = None  # script whose launches describe it
    signature: dict[str, Any] | None = None
    every_kernel: bool = False
    every_config: bool = False  # of an autotuner's; else the first


@dataclass(frozen=True)
class Compiled:
    """One variant of a kernel for one architecture. Where there is an `error`, the rest says nothing."""

    variant: Variant
    architecture: Architecture
    outcome: Outcome
    assembly: str = field(default="", repr=False)
    ttgir: str = field(default="", repr=False)

    @property
    def error(self) -> str:
        return self.outcome.error

    @cached_property
    def code(self) -> MachineCode:
        return machine_code.read(self.assembly)

    @cached_property
    def layouts(self) -> Layouts:
        return layouts.read(self.ttgir, lds_bytes=self.lds_bytes)

    @property
    def lds_bytes(self) -> int:
        return max(self.outcome.shared, self.code.lds_bytes)

    @cached_property
    def occupancy(self) -> Occupancy:
        need = Need(self.code.given_vgprs, self.lds_bytes, self.outcome.num_warps, self.code.both_units)
        return occupancy(self.architecture, need)

    def advice(self) -> tuple[Advice, ...]:
        warps, stages = self.outcome.num_warps, self.outcome.num_stages
        return advise(Facts(self.architecture, self.code, self.layouts, self.occupancy, self.lds_bytes, warps, stages))


@dataclass(frozen=True)
class Compilations:
    """All of one source. With a `refusal` nothing was compiled."""

    results: tuple[Compiled, ...] = ()
    triton: str = ""
    refusal: Refusal | None = None


@dataclass(frozen=True)
class Compiler:
    """`scratch` is a folder that the sandbox was given as one of ours."""

    sandbox: Sandbox
    python: str
    scratch: Path
    compile_s: float = COMPILE_S

    def compile(self, source: Source, architectures: Sequence[str]) -> Compilations:
        """Raises: UnknownArchitecture, KernelNotCompiled when the file's folder is too large, SandboxError, OSError."""
        wanted = [known(name) for name in architectures]
        self.scratch.mkdir(mode=0o711, parents=True, exist_ok=True)
        with passable_folder("isa-", self.scratch) as place:
            return self._compile(source, wanted, place)

    def _compile(self, source: Source, wanted: list[Architecture], place: Path) -> Compilations:
        guest = copy_guest(place / "guest")
        copied = sources.copy(source.file, source.launch, place / "source")
        out, skip, died = place / "out", list[_Key](), dict[_Key, str]()
        out.mkdir()
        request = {
            "file": str(copied.file),
            "launch": str(copied.launch) if copied.launch else None,
            "kernel": source.kernel,
            "signature": source.signature,
            "every_kernel": source.every_kernel,
            "every_config": source.every_config,
            "targets": [_target(one) for one in wanted],
            "out": str(out),
        }
        while True:
            ended = self._run({**request, "skip": skip}, guest, place, copied.root)
            plan = _read(out / "plan.json", Plan)
            if plan is None:
                return Compilations(refusal=Refusal(kind="died", message=_how(ended)))
            if plan.error is not None:
                return Compilations(triton=plan.triton, refusal=plan.error)
            asked = [(number, one.name) for number in range(len(plan.variants)) for one in wanted]
            left = [key for key in asked if key not in died and _read(out / _name(key), Outcome) is None]
            doing = _read(out / "doing.json", Doing)
            if not left or doing is None or (doing.variant, doing.arch) not in left:
                break
            # the compiler crashed over this one: go on with the others
            died[doing.variant, doing.arch] = f"the compiler died: {_how(ended)}"
            skip = [key for key in asked if key not in left or key in died]
            if len(skip) == len(asked):
                break
        results = [_result(out, plan.variants[key[0]], known(key[1]), died.get(key), key) for key in asked]
        return Compilations(tuple(results), plan.triton)

    def _run(self, request: dict[str, Any], guest: Path, place: Path, source: Path) -> Ended:
        """`source` is where the copied files are, and `place` a folder for ours."""
        home, inbox, out = Path(tempfile.mkdtemp(prefix="home-", dir=place)), place / "inbox", Path(request["out"])
        inbox.mkdir(exist_ok=True)
        (inbox / "request.json").write_text(json.dumps(request))
        triton = {"PYTHONWARNINGS": "ignore", "TRITON_HOME": str(home), "TRITON_CACHE_DIR": str(home / "triton")}
        command = Command(
            argv=(self.python, str(guest / "isa.py"), str(inbox / "request.json")),
            cwd=source,
            role="isa",
            env={**environment(home), **triton},
            readable=(guest, source, inbox),
            writable=(home, out),
            limits=Limits(file_bytes=1 << 30, disk_bytes=4 << 30),
        )
        process = self.sandbox.start(command)
        try:
            self._wait(process, out / "doing.json")
        finally:
            ended = process.stop()
        shutil.rmtree(home, ignore_errors=True)
        return ended

    def _wait(self, process: Process, doing: Path) -> None:
        """Until it ends, or has been busy with one thing for too long."""
        busy_with, since = _text(doing, _LONGEST_JSON), time.monotonic()
        while process.wait(_LOOK_S) is None:
            now = _text(doing, _LONGEST_JSON)
            if now != busy_with:
                busy_with, since = now, time.monotonic()
            elif time.monotonic() - since > self.compile_s:
                return


def known(name: str) -> Architecture:
    """Raises: UnknownArchitecture, which lists the known."""
    found = ARCHITECTURES.get(name.strip())
    if found is None:
        raise UnknownArchitecture(
            f"{plain(name)} is no architecture that is known here.", hint="Known are " + ", ".join(ARCHITECTURES) + "."
        )
    return found


def _target(one: Architecture) -> dict[str, Any]:
    """As the guest takes it."""
    units = max((device.compute_units for device in DEVICES if device.architecture == one.name), default=1)
    return {"name": one.name, "wave_size": one.wave_size, "lds_bytes": one.lds_bytes, "compute_units": units}


def _result(out: Path, variant: Variant, architecture: Architecture, died: str | None, key: _Key) -> Compiled:
    outcome = _read(out / _name(key), Outcome)
    if died or outcome is None:
        return Compiled(variant, architecture, Outcome(error=died or "it was not reached"))
    if outcome.error:
        return Compiled(variant, architecture, outcome.model_copy(update={"error": plain(outcome.error)}))
    assembly, ttgir = (_text(out / _name(key, ending), LONGEST_TEXT) for ending in ("amdgcn", "ttgir"))
    if not assembly:
        return Compiled(variant, architecture, Outcome(error="no machine code came back"))
    return Compiled(variant, architecture, outcome, assembly, ttgir or "")


def _name(key: _Key, ending: str = "json") -> str:
    return f"{key[0]}.{key[1]}.{ending}"


def _how(ended: Ended) -> str:
    stopped = "it took too long" if ended.reason == "stopped" else ""
    how = stopped or (f"signal {ended.signal}" if ended.signal else ended.reason)
    said = [line for line in plain(ended.output_tail[-2000:]).strip().splitlines() if line.strip()]
    return f"{how}{': ' + said[-1][:200] if said else ''}"


def _read(path: Path, model: type[_Answer]) -> _Answer | None:
    """None when there is no such file, or not one of this form."""
    try:
        return model.model_validate_json(_text(path, _LONGEST_JSON) or "")
    except ValidationError:
        return None


def _text(path: Path, longest: int) -> str | None:
    """Of a plain file, which untrusted code may have written; None for anything else, and for a longer one."""
    try:
        with opened(path) as file:
            content = file.read(longest + 1)
    except (OSError, BadTensorFile):
        return None
    return content.decode(errors="replace") if len(content) <= longest else None
