"""Write docs/guards.md: the tests of each guard of docs/trust.md and of the red team, and the tier they run in.

A test names the guards without which it fails: `@pytest.mark.guard("09_constant")`, or `pytestmark` for a whole file.
The names are those in the tables. Read from the sources; nothing is imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guards.md"
INTRODUCTION = """\
# Guards and their tests

Written by `make docs` from the marks of the tests; do not edit it. `make test` runs the tests of the tier `test`,
`make test-all` all of them. Where a guard has several tests, one shows what it refuses, and another that this gets
through without the guard.
"""


@dataclass(frozen=True)
class Test:
    file: Path
    name: str  # empty for all tests of a file
    tiers: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"[{self.name or self.file.name}](../{self.file.as_posix()}): {' and '.join(self.tiers)}"


@dataclass(frozen=True)
class Guard:
    names: tuple[str, ...]  # a test of any of them is one of the guard
    holds: str


def guards() -> dict[str, list[Guard]]:
    """Those of each table, by the table's title."""
    red_team = (ROOT / "evals" / "red_team" / "README.md").read_text()
    trust = (ROOT / "docs" / "trust.md").read_text()
    catalogue = [Guard(_names(cheat), guard) for _, cheat, guard, _ in rows(red_team, "# | cheat")]
    beyond = [Guard(_names(cheat), guard) for cheat, _, guard, _ in rows(red_team, "cheat | what it did")]
    promises = [Guard(_names(guard), promise) for promise, guard in rows(trust, "promise | guard")]
    attacks = Guard(("attacks",), "every promise of the table of attacks")
    return {"The judge: the red team": [*catalogue, *beyond], "Promises of docs/trust.md": [*promises, attacks]}


def rows(page: str, header: str) -> Iterator[list[str]]:
    """The cells of each row of the tables whose header begins so."""
    for table in re.findall(rf"^\| {re.escape(header)} .*\n\|[ |-]+\n((?:\|.*\n)+)", page, re.MULTILINE):
        for line in table.splitlines():
            yield [cell.strip() for cell in line.strip("| ").split(" | ")]


def _names(cell: str) -> tuple[str, ...]:
    """The texts in backticks where a cell is nothing but these, else all of it."""
    return tuple(re.findall(r"`([^`]+)`", cell)) if re.fullmatch(r"(`[^`]+`(, )?)+", cell) else (cell.replace("`", ""),)


def marked() -> dict[str, list[Test]]:
    """The tests that name a guard, by its name."""
    found: dict[str, list[Test]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree, file = ast.parse(path.read_text()), path.relative_to(ROOT)
        tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        all_marks = [
            node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
        ]
        tiers_of = {test.name: _tiers([*all_marks, *test.decorator_list]) for test in tests}
        for name in _guards(all_marks):
            found[name].append(Test(file, "", tuple(sorted({tier for tiers in tiers_of.values() for tier in tiers}))))
        for test in tests:
            for name in _guards(test.decorator_list):
                found[name].append(Test(file, test.name, tiers_of[test.name]))
    return found


def _guards(marks: list[ast.expr]) -> list[str]:
    calls = [node for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Call)]
    return [ast.literal_eval(a) for call in calls if ast.unparse(call.func) == "pytest.mark.guard" for a in call.args]


def _tiers(marks: list[ast.expr]) -> tuple[str, ...]:
    """Of a test with these marks; a mark on some of its parameters gives it both tiers."""
    found = {"test"}
    for mark in map(ast.unparse, marks):
        for name, tier in (("slow", "test-all"), ("gpu", "test-gpu")):
            if f"mark.{name}" in mark:
                found.add(tier)
                if "parametrize" not in mark:
                    found.discard("test")
    return tuple(sorted(found))


def page() -> str:
    parts, tests = [INTRODUCTION], marked()
    for title, table in guards().items():
        parts.append(f"\n## {title}\n\n| name | guard | tests and their tier |\n| --- | --- | --- |\n")
        for guard in table:
            lines = dict.fromkeys(test.line for name in guard.names for test in tests[name])
            parts.append(f"| {', '.join(guard.names)} | {guard.holds} | {'; '.join(lines)} |\n")
    return "".join(parts)


def main() -> int:
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
