"""Write `docs/exit-status.md` from the error classes; a status that two of them claim is an error."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import agent
import evals
import sandbox
import tools
from agent.guard import OTHER_STATUSES, RETIRED_STATUSES
from sandbox.errors import RatchetError
from tools.errors import WORKLOAD_KINDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "exit-status.md"
HEAD = """\
# Exit statuses

Written by `make docs` from the errors in the code; do not edit.

Every error is told in one message on standard error: what is wrong, where, and what to do next. The status is for
scripts. Statuses of `agent` and `evals` are the same.

| status | name | meaning |
| --- | --- | --- |
"""


RETIRED = """
## No longer used

| status | was |
| --- | --- |
"""


def page() -> str:
    listed = "".join(f"| {status} | {name} | {meaning} |\n" for status, name, meaning in sorted(rows()))
    return HEAD + listed + RETIRED + "".join(f"| {each} | {was} |\n" for each, was in RETIRED_STATUSES.items())


def rows() -> Iterator[tuple[int, str, str]]:
    """Status, name and meaning of every way to end. Raises: ValueError when two of them share a status."""
    seen = dict(RETIRED_STATUSES)
    for status, name, meaning in _all():
        if status in seen:
            raise ValueError(f"{name} and {seen[status]} both end with status {status}")
        seen[status] = name
        yield status, name, meaning.replace("|", "\\|")


def _all() -> Iterator[tuple[int, str, str]]:
    for status, meaning in OTHER_STATUSES.items():
        yield status, "", meaning
    for error in errors():
        # a subclass that inherits its status has no row of its own
        if "exit_status" in vars(error):
            first, _, _ = (error.__doc__ or "").strip().partition("\n")
            yield error.exit_status, f"`{error.__name__}`", first
    kinds: dict[int, list[str]] = {}
    for kind, (status, _, _) in WORKLOAD_KINDS.items():
        kinds.setdefault(status, []).append(kind)
    for status, names in kinds.items():
        # kinds of one status are one problem; the first describes all
        _, says, do = WORKLOAD_KINDS[names[0]]
        yield status, ", ".join(f"`{name}`" for name in names), f"The entry {says}. {do}"


def errors() -> list[type[RatchetError]]:
    """All error classes of the packages."""
    for package in (agent, evals, sandbox, tools):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            # guest modules import torch, and a `__main__` runs
            if not module.name.startswith("sandbox.guest.") and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found, waiting = [], [RatchetError]
    while waiting:
        error = waiting.pop()
        found.append(error)
        waiting += error.__subclasses__()
    return sorted(set(found), key=lambda error: (error.exit_status, error.__name__))


def main() -> int:
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
