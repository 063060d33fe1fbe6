"""The tool that reads skill packs: what is known of kernels, libraries, compilers and measuring."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from tools.registry import Request, Result, Tool, paged
from tools.registry.files import Text


class Learning(Protocol):
    """What this tool needs of a session."""

    def skill(self, name: str) -> str:
        """A list for an empty name. Raises: ToolFault."""
        ...


class Skill(Request):
    """Read a file of a skill pack: instructions and references on AMD GPUs, Triton, profiling and measuring, and code
    that works there.
    """

    name: str = ""
    """`pack` for its main file, or `pack/references/file.md`; empty for a list of all."""
    first_line: int = Field(default=1, ge=1)
    """The first line to read, from 1."""


def skill(session: Learning, request: Skill) -> Result:
    lines = session.skill(request.name).splitlines()
    return Text(said=paged(lines, request.first_line, None, what="It", tool="skill"))


TOOLS = [Tool("skill", Skill, skill, looks_only=True)]
