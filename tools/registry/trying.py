"""Tools to try things out: a command in the sandbox, and what Triton compiles a kernel to for AMD GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import Field

from tools.command import Ran
from tools.registry import LONGEST, Request, Tool, cut, paged

LONGEST_RUN_S = 300


class Trying(Protocol):
    """What these tools need of a session. They may raise ToolFault."""

    def run(self, command: str, timeout_s: float) -> Ran: ...

    def isa(self, file: str, kernel: str, launch: str, architectures: Sequence[str]) -> str: ...


class Run(Request):
    """Run a shell command in the sandbox, on a copy of your candidate's files that is thrown away afterwards: a script,
    the repository's tests, a look at an installed library. `python` is the one that the repository runs with. There is
    no network. Nothing is kept from one command to the next, builds of extensions included. Times that you take there
    compare two ways roughly, beside each other in one command; what a candidate gains only `measure` tells.
    """

    command: str = Field(min_length=1, max_length=8000)
    """For /bin/sh, in the top folder of the repository; such as `python -m pytest -q tests`."""
    seconds: int = Field(default=60, ge=1, le=LONGEST_RUN_S)
    """Then it is ended."""


def run(session: Trying, request: Run) -> str:
    ran = session.run(request.command, float(request.seconds))
    said = cut(ran.output.strip(), LONGEST - 200, "write less, or filter it") or "it wrote nothing"
    return f"{ran.how}\n{said}"


class Isa(Request):
    """Compile Triton kernels of a file for AMD GPUs, which needs none: registers, spills, LDS, occupancy, load width,
    advice.
    """

    file: str
    """Python file with the kernels, relative to the top of the repository."""
    kernel: str = ""
    """One of its kernels; empty where it has one."""
    launch: str = ""
    """A script whose launches show what the arguments are (on pretended tensors); empty where annotations say it."""
    architectures: list[str] = Field(default=["gfx90a", "gfx942", "gfx950"], min_length=1, max_length=8)
    first_line: int = Field(default=1, ge=1)
    """The first line of the answer to show, from 1."""


def isa(session: Trying, request: Isa) -> str:
    lines = session.isa(request.file, request.kernel, request.launch, request.architectures).splitlines()
    return paged(lines, request.first_line, None, what="It", tool="isa")


TOOLS = [Tool("run", Run, run, looks_only=True), Tool("isa", Isa, isa, looks_only=True)]
