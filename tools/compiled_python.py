"""Tell compiled Python that an interpreter wrote beside its source from a forged file.

Any start of Python in the same environment, a test run or an editor's, may add files to `__pycache__`; workers read
what is there instead of the source. Refuses to believe a file's own word: it is compared with what its source gives,
in a process of its own, since a forged one may end whoever reads it. Nothing of it is run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_COMPILED = re.compile(rf"(?P<name>.+)\.{re.escape(sys.implementation.cache_tag or '')}(\.opt-(?P<level>[12]))?\.pyc")
_TIMEOUT_S = 60
_COMPARE = """
import importlib.util, json, marshal, resource, sys, types

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
HEADER = 16  # bytes: magic number, flags, and time and size, or the hash, of the source

def facts(value):
    if isinstance(value, types.CodeType):
        names = [n for n in dir(value) if n.startswith("co_") and n not in ("co_filename", "co_lnotab")]
        return [(n, facts(getattr(value, n))) for n in names if not callable(getattr(value, n))]
    if isinstance(value, tuple):
        return ["tuple", *map(facts, value)]
    if isinstance(value, frozenset):
        return ["frozenset", *sorted(map(repr, map(facts, value)))]
    return type(value).__name__, repr(value)

def is_of(compiled, source, level):
    with open(compiled, "rb") as file:
        found = file.read()
    with open(source, "rb") as file:
        code = compile(file.read(), source, "exec", dont_inherit=True, optimize=level)
    return found[:4] == importlib.util.MAGIC_NUMBER and facts(marshal.loads(found[HEADER:])) == facts(code)

for line in sys.stdin:
    try:
        same = is_of(*json.loads(line))
    except Exception:
        same = False
    print(json.dumps(same), flush=True)
"""


def without_compiled(changes: Sequence[str]) -> list[str]:
    """The changes, as `Manifest.changes` names them, but for what is added and is no more than its source compiled."""
    compiled = {change: found for change in changes if (found := _compiled(change))}
    same = dict(zip(compiled, _are_of_their_sources([*compiled.values()]), strict=False))  # fewer: it died of one
    return [change for change in changes if not (same.get(change) or _is_folder_for_it(change))]


def _added(change: str) -> Path | None:
    kind, _, name = change.partition(" ")
    return Path(name) if kind == "added" and not Path(name).is_symlink() else None


def _is_folder_for_it(change: str) -> bool:
    path = _added(change)
    return path is not None and path.name == "__pycache__" and path.is_dir()


def _compiled(change: str) -> tuple[str, str, int] | None:
    """(compiled file, its source, level of optimisation)"""
    path = _added(change)
    if path is None or path.parent.name != "__pycache__" or path.parent.is_symlink():
        return None
    found = _COMPILED.fullmatch(path.name)
    return found and (str(path), str(path.parent.parent / f"{found['name']}.py"), int(found["level"] or 0))


def _are_of_their_sources(files: Sequence[tuple[str, str, int]]) -> list[bool]:
    if not files:
        return []
    lines = "".join(f"{json.dumps(file)}\n" for file in files)
    command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-W", "ignore", "-c", _COMPARE]
    try:
        done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return []
    return [line == "true" for line in done.stdout.splitlines()]
