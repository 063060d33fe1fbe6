"""What is long of what was tried out is shown in parts."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tools.registry import LONGEST, Registry
from tools.registry import trying as trying_tools


def page(file: str, kernel: str, launch: str, architectures: Sequence[str]) -> str:
    return "\n".join(f"{file} on {name}: line {n:04}" for name in architectures for n in range(1000))


def test_a_long_page_of_machine_code_says_how_to_see_more() -> None:
    session, registry = SimpleNamespace(isa=page), Registry(trying_tools.TOOLS)
    seen, first_line = list[str](), 1
    while first_line:
        said = registry.call(session, "isa", {"file": "k.py", "first_line": first_line}).text
        assert len(said) <= LONGEST
        shown, _, more = said.partition("\n[… ")
        seen += shown.splitlines()
        first_line = int(more.rpartition("isa with first_line=")[2].split()[0]) if more else 0
    assert seen == page("k.py", "", "", ["gfx90a", "gfx942", "gfx950"]).splitlines()
