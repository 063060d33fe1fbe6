"""Skill packs: Markdown that teaches a model or a person, in the Agent Skills format. Ours, and those of the user.

Their text is ours or the user's, never the target's. A path that leaves its pack, or a name used twice, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from agent.errors import AgentError

MAIN = "SKILL.md"
OURS = Path(__file__).parents[2] / "skills"
_NOT_PACKED = {"__pycache__"}
LONGEST_FILE = 1 << 20


class PackUnusable(AgentError):
    """A folder is no skill pack, or its name is taken."""

    exit_status = 96


@dataclass(frozen=True)
class Pack:
    """A folder with a `SKILL.md`."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def described(self) -> dict[str, Any]:
        """The front matter. Raises: PackUnusable."""
        found = re.match(r"---\n(.*?)\n---\n", self.text(), re.DOTALL)
        try:
            told = yaml.safe_load(found[1]) if found else None
        except yaml.YAMLError as error:
            raise PackUnusable(f"The front matter of {self.folder / MAIN} is no YAML: {error}") from error
        if not isinstance(told, dict) or told.get("name") != self.name or not str(told.get("description") or ""):
            raise PackUnusable(
                f"{self.folder / MAIN} does not begin with its name and a description.",
                hint="It begins with ---, name: (as the folder), description: and ---.",
            )
        return told

    @property
    def description(self) -> str:
        return " ".join(str(self.described["description"]).split())

    def files(self) -> list[str]:
        """All files, `SKILL.md` first."""
        found = [
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file() and not path.is_symlink() and not _NOT_PACKED & {*path.parts}
        ]
        return sorted(found, key=lambda name: (name != MAIN, name))

    def contents(self) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in self.files()}

    def text(self, path: str = MAIN) -> str:
        """Raises: PackUnusable when there is no such text in it."""
        place = self.folder / path
        try:
            inside = place.resolve().is_relative_to(self.folder.resolve())
            if ".." in Path(path).parts or Path(path).is_absolute() or not inside:
                raise PackUnusable(f"{path} is no file of the pack {self.name}.")
            if place.stat().st_size > LONGEST_FILE:
                raise PackUnusable(f"{path} of the pack {self.name} is too long to be read.")
            return place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PackUnusable(
                f"There is no text {path} in the pack {self.name}.", hint=f"There are {', '.join(self.files()[:40])}."
            ) from error

    def section(self, heading: str) -> str:
        """What stands below a heading of `SKILL.md`, of any level, up to the next of its level or above. Raises:
        PackUnusable.
        """
        level, in_code, found = 0, False, list[str]()
        for line in self.text().splitlines():
            in_code ^= line.lstrip().startswith("```")
            head = None if in_code else re.match(r"(#{1,6}) +(.*?) *#*$", line)
            if level and head and len(head[1]) <= level:
                break
            if level:
                found.append(line)
            elif head and head[2].replace("`", "") == heading:
                level = len(head[1])
        if not level:
            raise PackUnusable(f"{self.folder / MAIN} has no section {heading}.")
        return "\n".join(found).strip()


@dataclass(frozen=True)
class Packs:
    """Those that a run has, by name."""

    packs: tuple[Pack, ...]

    @classmethod
    def of(cls, extra: Sequence[Path] = ()) -> Packs:
        """Ours and those in these folders, each a pack or a folder of packs. Raises: PackUnusable."""
        found = list(found_in(OURS))
        for folder in extra:
            found += found_in(folder)
        names = [pack.name for pack in found]
        if double := next((name for name in names if names.count(name) > 1), None):
            raise PackUnusable(f"There are two packs of the name {double}.", hint="Give yours another name.")
        return cls(tuple(found))

    def get(self, name: str) -> Pack:
        """Raises: PackUnusable."""
        for pack in self.packs:
            if pack.name == name:
                return pack
        raise PackUnusable(f"There is no pack {name}.", hint=f"There are {', '.join(p.name for p in self.packs)}.")

    def read(self, name: str) -> str:
        """`pack` or `pack/file`. Raises: PackUnusable."""
        pack, _, path = name.strip("/").partition("/")
        return self.get(pack).text(path or MAIN)

    def listed(self) -> str:
        """Each pack with what it is for and its files, for a prompt."""
        return "\n".join(
            f"- {pack.name}: {pack.description}\n  Files: {', '.join(pack.files())}" for pack in self.packs
        )


def found_in(folder: Path) -> Iterable[Pack]:
    """The pack that a folder is, or those in it. Raises: PackUnusable where there is none."""
    if (folder / MAIN).is_file():
        found = [Pack(folder.resolve())]
    else:
        found = [Pack(path.parent.resolve()) for path in sorted(folder.glob(f"*/{MAIN}"))]
    if not found:
        raise PackUnusable(f"There is no skill pack in {folder}.", hint=f"A pack is a folder with a {MAIN}.")
    for pack in found:
        _ = pack.described
    return found
