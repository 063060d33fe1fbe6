"""Write what a tuner found into our kernels' own files: the options of a launch for each size that was measured.

It refuses where no choice was plainly faster than the kernel's own rule, and touches no file that is not ours.
"""

from __future__ import annotations

from pathlib import Path

from tools.rewrite import CannotRewrite
from tools.rewrite.ops_package import MARK
from tools.rewrite.runtime_files import PACKAGE
from tools.tuned import Choice, Launch, Tuned

GAIN = 0.05  # of a kernel's time; less is noise, and of no use in a whole call
_EMPTY = 'TUNED = Tuned({}, "")'


def find(tree: Path) -> list[str]:
    """Our kernels' files in a tree that nobody has tuned yet, relative to it."""
    found = []
    for path in sorted(tree.rglob(f"{PACKAGE}/*.py")):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if text.startswith(MARK) and f"\n{_EMPTY}" in text:
            found.append(path.relative_to(tree).as_posix())
    return found


def rewrite(tree: Path, tuned: Tuned) -> dict[str, str]:
    """New file contents. Raises: CannotRewrite."""
    changed: dict[str, str] = {}
    for file in find(tree):
        table = _table([launch for launch in tuned.launches if launch.file == file])
        if table:
            text = (tree / file).read_text(encoding="utf-8")
            lines = "".join(f"    {size}: {choice},\n" for size, choice in sorted(table.items()))
            changed[file] = text.replace(_EMPTY, f"TUNED = Tuned({{\n{lines}}}, {tuned.device!r})", 1)
    if not changed:
        raise CannotRewrite(f"no launch was faster than its kernel's own rule by more than {GAIN:.0%}")
    return changed


def _table(launches: list[Launch]) -> dict[tuple[int, int], Choice]:
    """(rows, columns) -> options. Of all rows seen with these columns, so that between them the rule holds as well."""
    best: dict[tuple[int, int], Choice] = {}
    for launch in sorted(launches, key=lambda launch: launch.rule_us):  # where two kernels share a size, the longer
        best[launch.rows, launch.columns] = launch.best(GAIN)
    wide = {columns for (_, columns), choice in best.items() if choice}
    return {size: choice for size, choice in best.items() if size[1] in wide}
