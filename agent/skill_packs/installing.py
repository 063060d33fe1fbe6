"""Put skill packs where an agent looks for them. Copies, and never writes over what somebody changed unless told to."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from agent.skill_packs import Pack, PackUnusable

# below the repository, or the home of a user: where each agent looks (code.claude.com/docs/en/skills,
# developers.openai.com/codex/skills)
PLACES = {"claude": Path(".claude", "skills"), "codex": Path(".agents", "skills")}


def place_for(agent: str, root: Path) -> Path:
    """`agent` is one of `PLACES`, or the path of a folder that is to hold the packs."""
    return root / PLACES[agent] if agent in PLACES else Path(agent)


def install(packs: Sequence[Pack], into: Path, *, replace: bool = False) -> list[str]:
    """Copy packs into a folder; says what was done with each. Raises: PackUnusable, OSError."""
    told = []
    for pack in packs:
        there = into / pack.name
        if there.is_symlink() or (there.exists() and not there.is_dir()):
            raise PackUnusable(f"{there} is in the way.", hint="Move it away first.")
        same = there.exists() and _same(pack, there)
        if there.exists() and not same and not replace:
            raise PackUnusable(f"{there} is there already, and differs.", hint="With --replace it is written over.")
        if not same:
            _copy(pack, there)
        told.append(f"{pack.name}: {'was there already' if same else 'installed'} in {there}")
    return told


def _copy(pack: Pack, into: Path) -> None:
    shutil.rmtree(into, ignore_errors=True)
    for name in pack.files():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pack.folder / name, into / name)


def _same(pack: Pack, there: Path) -> bool:
    other = Pack(there)
    return other.files() == pack.files() and all(
        (there / name).read_bytes() == (pack.folder / name).read_bytes() for name in pack.files()
    )
