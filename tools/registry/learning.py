"""The tool that reads skill packs: what is known of kernels, libraries, compilers and measuring."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from tools.registry import LONGEST, Request, Result, Tool, ToolFault
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
    lines, shown, length = session.skill(request.name).splitlines(), list[str](), 0
    if request.first_line > max(1, len(lines)):
        raise ToolFault(f"It has {len(lines)} lines.", "Read from an earlier line.")
    for line in lines[request.first_line - 1 :]:
        length += len(line) + 1
        if length > LONGEST - 200 and shown:
            break
        shown.append(line)
    last = request.first_line + len(shown) - 1
    more = f"\n[… {len(lines) - last} more lines: skill with first_line={last + 1} …]" if last < len(lines) else ""
    return Text(said="\n".join(shown) + more)


TOOLS = [Tool("skill", Skill, skill)]
