"""Write docs/guards.md: each guard of docs/trust.md and of the red team, its tests, and the tier they run in.

A row's tests are those that it names, those of the red team that use its cheat or begin with its number, and those that
are marked `guard("first cell of the row")`. Read from the sources; nothing is imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guards.md"
TRUST = ROOT / "docs" / "trust.md"
RED_TEAM = ROOT / "evals" / "red_team"
ATTACKS_TAKEN_AWAY = Path("tests/sandbox/test_guards.py")  # each guard of a sandbox off, and what then gets through
INTRODUCTION = """\
# Guards and their tests

Written by `make docs`; do not edit it. `make test` runs the tests of the tier `test`, `make test-all` all of them.
Where a row has several tests, one shows what the guard refuses, and another that it gets through without the guard.
"""


@dataclass(frozen=True)
class Test:
    file: Path
    name: str  # empty for all tests of a file
    tiers: tuple[str, ...]
    text: str = ""  # of the function, with the constants that parametrise it

    @property
    def line(self) -> str:
        where = f"[{self.name or self.file.name}](../{self.file.as_posix()})"
        return f"{where}: {' and '.join(self.tiers)}"


@dataclass(frozen=True)
class Guard:
    name: str
    against: str
    tests: tuple[Test, ...]


@cache
def tests_of(file: Path) -> tuple[Test, ...]:
    """The tests of a file, by its path below the root."""
    source = (ROOT / file).read_text()
    tree = ast.parse(source)
    assigned = {
        target.id: ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = [ast.unparse(decorator) for decorator in node.decorator_list]
            named = {each.id for mark in node.decorator_list for each in ast.walk(mark) if isinstance(each, ast.Name)}
            text = "\n".join([*marks, ast.unparse(node), *(assigned[name] for name in named & assigned.keys())])
            found.append(Test(file, node.name, _tiers([assigned.get("pytestmark", ""), *marks]), text))
    return tuple(found)


def _tiers(marks: Iterable[str]) -> tuple[str, ...]:
    """Of a test with these marks; a mark on some of its parameters gives it both tiers."""
    found = {"test"}
    for mark in marks:
        for name, tier in (("slow", "test-all"), ("gpu", "test-gpu")):
            if f"mark.{name}" in mark:
                found.add(tier)
                if "parametrize" not in mark:
                    found.discard("test")
    return tuple(sorted(found))


def whole(file: Path) -> Test:
    return Test(file, "", tuple(sorted({tier for test in tests_of(file) for tier in test.tiers})))


def rows(text: str, header: str) -> Iterator[list[str]]:
    """The cells of each row of the tables whose header begins so."""
    for table in re.findall(rf"^\| {re.escape(header)} .*\n\|[ |-]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        for line in table.splitlines():
            yield [cell.strip() for cell in line.strip("| ").split(" | ")]


def of_red_team() -> Iterator[Guard]:
    page = (RED_TEAM / "README.md").read_text()
    for number, cheat, guard, _ in rows(page, "# | cheat"):
        yield Guard(guard, f"{number}: {cheat}", tuple(_tests_of_row(cheat, [number, *_cheats(cheat)], guard)))
    for cheat, _, guard, _ in rows(page, "cheat | what it did"):
        yield Guard(guard, cheat, tuple(_tests_of_row(cheat, _cheats(cheat), guard)))


def _cheats(cell: str) -> list[str]:
    return [name for name in re.findall(r"`(\w+)`", cell) if (RED_TEAM / "cheats" / name).is_dir()]


def _tests_of_row(cell: str, names: list[str], guard: str) -> Iterator[Test]:
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if 'mark.guard("' not in file.read_text() and not file.name.startswith("test_red_team_"):
            continue
        for test in tests_of(file.relative_to(ROOT)):
            numbers = re.findall(r"(?<=_)\d\d(?=_)", test.name)
            if f"mark.guard('{cell}')" in test.text or any(n in numbers or f"'{n}'" in test.text for n in names):
                yield test
    yield from _named(cell + guard)


def of_trust() -> Iterator[Guard]:
    page = TRUST.read_text()
    for promise, tests in rows(page, "promise | test"):
        yield Guard(promise, "", tuple(_named(tests)))
    for promise, *_ in rows(page, "promise | docker"):
        yield Guard(f"sandbox: {promise}", "the attacks that docs/trust.md lists", (whole(ATTACKS_TAKEN_AWAY),))


def _named(text: str) -> Iterator[Test]:
    """The files of tests that a text names; of a folder its red team."""
    for path in dict.fromkeys(re.findall(r"(?:\.\./|`)(tests/[\w/]+/test_\w+\.py)", text)):
        yield whole(Path(path))
    if "`tests/evals/`" in text:
        for file in sorted((ROOT / "tests/evals").glob("test_red_team_*.py")):
            yield whole(file.relative_to(ROOT))


def page() -> str:
    parts = [INTRODUCTION]
    for title, guards in (("The judge: the red team", of_red_team()), ("Promises of docs/trust.md", of_trust())):
        parts.append(f"\n## {title}\n\n| guard | against | tests and their tier |\n| --- | --- | --- |\n")
        parts += [f"| {g.name} | {g.against} | {'; '.join(test.line for test in g.tests)} |\n" for g in guards]
    return "".join(parts)


def main() -> int:
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
