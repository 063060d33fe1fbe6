"""Run a command in the sandbox, on a copy of a tree: what its author wants to try, on nobody's behalf.

What comes back is what the command wrote, and says nothing that anybody relies on. The copy goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandbox.contract import Command, Ended, Limits, Sandbox
from tools.plain_text import plain
from tools.program_environment import environment
from tools.tree_removal import passable_folder, remove_tree

DISK_BYTES = 4 << 30
OUTPUT_BYTES = 4 << 20
# the copy belongs to whoever runs the command; a link to Python would leave its environment
_PREPARE = r"""
mkdir "$HOME/bin" && printf '#!/bin/sh\nexec "%s" "$@"\n' "$(command -v "$2")" > "$HOME/bin/python" &&
chmod 755 "$HOME/bin/python" && cp -rT "$1" "$HOME/tree" && chmod -R u+w "$HOME/tree" && cd "$HOME/tree" &&
exec /bin/sh -c "$3"
"""


@dataclass(frozen=True)
class Ran:
    """How a command ended. `status` is None where it was ended."""

    status: int | None
    how: str
    output: str


@dataclass(frozen=True)
class Commands:
    """`scratch` is a folder that the sandbox was given as one of ours."""

    sandbox: Sandbox
    python: str
    scratch: Path
    memory_bytes: int | None = None

    def run(self, tree: Path, command: str, timeout_s: float) -> Ran:
        """`command` is for a shell, in a copy of the tree; `python` is the target's. Raises: SandboxError, OSError."""
        self.scratch.mkdir(mode=0o711, parents=True, exist_ok=True)
        with passable_folder("command-", self.scratch) as place:
            home = place / "home"
            home.mkdir()
            try:
                return self._run(tree, command, timeout_s, home)
            finally:
                remove_tree(home)  # raises where what the command left cannot be removed

    def _run(self, tree: Path, command: str, timeout_s: float, home: Path) -> Ran:
        given = environment(home)
        process = self.sandbox.start(
            Command(
                argv=("/bin/sh", "-c", _PREPARE, "sh", str(tree), self.python, command),
                cwd=home,
                role="command",
                env={**given, "PATH": f"{home / 'bin'}:{given.get('PATH', '/usr/bin:/bin')}"},
                readable=(tree,),
                writable=(home,),
                limits=Limits(
                    memory_bytes=self.memory_bytes,
                    output_bytes=OUTPUT_BYTES,
                    file_bytes=DISK_BYTES,
                    disk_bytes=DISK_BYTES,
                ),
            )
        )
        try:
            in_time = process.wait(timeout_s) is not None
        finally:
            ended = process.stop()
        return Ran(ended.status if in_time else None, _how(ended, in_time, timeout_s), _said(ended))


def _said(ended: Ended) -> str:
    said, left_out = plain(ended.output_tail), ended.output_bytes - len(ended.output_tail.encode())
    return f"[… {left_out} bytes before this were not kept …]\n{said}" if left_out > 0 else said


def _how(ended: Ended, in_time: bool, timeout_s: float) -> str:
    if not in_time:
        return f"ended after {timeout_s:.0f} s, which is all it may take"
    if ended.reason == "exited":
        return f"exit status {ended.status}"
    return f"ended by signal {ended.signal}" if ended.reason == "signal" else f"ended: {ended.reason}"
