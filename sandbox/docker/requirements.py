"""What a target says that it requires, gathered into two files of pip's format for an image that is built for it.

Nothing of the target is run, nothing outside of it is read, and no address that holds a password is taken.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.docker.progress import plain
from sandbox.errors import ImageBuildFailed

_MOST_BYTES = 4 << 20  # of all files together
_MOST_FILES = 50
_IN_PIPS_FORMAT = ("requirements.lock", "requirements.txt")  # the first that is there
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")  # their versions bind what pyproject.toml requires
_ELSEWHERE = ("git", "hg", "vcs", "url", "path", "directory", "archive", "virtual", "editable")
_WRITE = "Write a requirements.txt in pip's format; most tools export one."

_INCLUDE = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?<=-[rc]))(\S+)\s*$")
_SOURCE = re.compile(r"(?:-i|--index-url|--extra-index-url|-f|--find-links)(?:\s*=\s*|\s+)(\S+)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S+)")
_NAMED_PLACE = re.compile(r"[\w.-]+(?:\[[^]]*\])?\s*@\s*(\S+)")
_ARCHIVES = (".whl", ".zip", ".tar.gz")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+")
# https://token@…, …://user:password@…, and variables, which hold such things; a user alone is plain ssh
_SECRET = re.compile(r"https?://[^/\s]*@|://[^/\s@]*:[^/\s@]*@|\$\{\w+\}")


@dataclass(frozen=True)
class Requirements:
    """What to install, line by line in pip's format, and what a person should know of it."""

    files: list[str] = field(default_factory=list)  # of the target, that were read
    lines: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)  # named by them: indexes, repositories, archives
    left_out: list[str] = field(default_factory=list)  # the target itself, and what lies on this disk

    def as_files(self) -> dict[str, bytes]:
        """For the folder of a build."""
        found = {"requirements.txt": self.lines, "constraints.txt": self.constraints}
        return {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in found.items()}


def read(target: Path) -> Requirements:
    """Raises: ImageBuildFailed when there are none, or they cannot be taken as they are."""
    reading = _Reading(target)
    for name in _IN_PIPS_FORMAT:
        if os.path.lexists(target / name):
            reading.take(name, binding=False)
            return reading.found
    if not os.path.lexists(target / "pyproject.toml"):
        raise _cannot(
            f"{target} does not say what it requires: it has no {', '.join(_IN_PIPS_FORMAT)} or pyproject.toml"
        )
    for line in _dependencies(reading.toml("pyproject.toml")):
        reading.take_line("pyproject.toml", line, binding=False)
    if lock := next((name for name in _LOCKS if os.path.lexists(target / name)), None):
        for pin in _pins(reading.toml(lock)):
            reading.take_line(lock, pin, binding=True)
    return reading.found


def _cannot(message: str) -> ImageBuildFailed:
    return ImageBuildFailed(message, hint=_WRITE)


class _Reading:
    """One pass through the files of a target; `binding` is for what only constrains."""

    def __init__(self, target: Path) -> None:
        self.found = Requirements()
        self._root = os.path.realpath(target)
        self._left = _MOST_BYTES
        self._read = set[str]()

    def take(self, name: str, *, binding: bool) -> None:
        """A file in pip's format, with those it includes."""
        for line in _logical_lines(self._text(name)):
            include = _INCLUDE.match(line)
            if include is None:
                self.take_line(name, line, binding=binding)
                continue
            if "://" in include[2]:
                raise _cannot(f"{plain(name)} takes requirements from {plain(include[2])}")
            other = os.path.normpath(os.path.join(os.path.dirname(name), include[2]))
            if other not in self._read:
                self.take(other, binding=binding or include[1] in ("-c", "--constraint"))

    def take_line(self, name: str, line: str, *, binding: bool) -> None:
        if _SECRET.search(line):
            raise ImageBuildFailed(
                f"{plain(name)} names an address with a password, a token or a variable: it would stay in the image",
                hint="Take it out, and give an index that needs none with --arg PIP_INDEX_URL=….",
            )
        place = _EDITABLE.match(line) or _SOURCE.match(line)
        if _is_local(place[1] if place else "" if line.startswith("-") else line):
            self.found.left_out.append(plain(line))
            return
        for address in map(plain, _ADDRESS.findall(line)):
            if address not in self.found.addresses:
                self.found.addresses.append(address)
        (self.found.constraints if binding else self.found.lines).append(line)

    def toml(self, name: str) -> dict[str, Any]:
        try:
            return tomllib.loads(self._text(name))
        except tomllib.TOMLDecodeError as error:
            raise _cannot(f"{name} is not TOML: {plain(str(error))}") from None

    def _text(self, name: str) -> str:
        if len(self._read) >= _MOST_FILES:
            raise _cannot(f"more than {_MOST_FILES} files include each other for the requirements")
        content = _read_inside(self._root, name, self._left)
        self._left -= len(content)
        self._read.add(name)
        self.found.files.append(plain(name))
        return content.decode(errors="replace")


def _read_inside(root: str, name: str, at_most: int) -> bytes:
    """A file of the target, by the path that the kernel says it has: links that lead out are not followed.

    Raises: ImageBuildFailed.
    """
    outside = ImageBuildFailed(
        f"{plain(name)} lies outside of the target {root}, or leads out of it: nothing there is read for an image",
        hint="Put what it names into the target, as a file.",
    )
    if os.path.isabs(name) or ".." in name.split("/"):
        raise outside
    with contextlib.ExitStack() as held:
        try:
            # only looked up: what lies outside is not even opened
            handle = os.open(os.path.join(root, name), os.O_PATH | os.O_CLOEXEC)
            held.callback(os.close, handle)
            if not os.readlink(f"/proc/self/fd/{handle}").startswith(os.path.join(root, "")):
                raise outside
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _cannot(f"{plain(name)} of the target is not a file")
            content = held.enter_context(open(f"/proc/self/fd/{handle}", "rb")).read(at_most + 1)
        except OSError as error:
            raise _cannot(f"{plain(name)} of the target cannot be read: {error.strerror}") from None
    if len(content) > at_most:
        raise _cannot(f"what says what the target requires exceeds {_MOST_BYTES >> 20} MiB")
    return content


def _is_local(what: str) -> bool:
    """Whether a requirement is a place on this disk: `.`, `./part[extra]`, `name @ file:///…`, a wheel."""
    named = _NAMED_PLACE.match(what)
    place = re.split(r"[\s;[]", named[1] if named else what.strip(), maxsplit=1)[0]
    if place.startswith("file:") or "+file:" in place:
        return True
    return "://" not in place and (place.startswith((".", "~")) or "/" in place or place.endswith(_ARCHIVES))


def _logical_lines(text: str) -> Iterator[str]:
    """Without comments and empty lines; what a backslash continues is one line."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if bare := re.sub(r"(^|\s)#.*", "", line).strip():
            yield bare


def _dependencies(project: dict[str, Any]) -> list[str]:
    table = project.get("project")
    table = table if isinstance(table, dict) else {}
    if "dependencies" in table.get("dynamic", ()) or (
        "dependencies" not in table and "poetry" in project.get("tool", {})
    ):
        raise _cannot("pyproject.toml leaves it to a tool to say what the target requires")
    found = table.get("dependencies", [])
    if not isinstance(found, list) or not all(isinstance(line, str) for line in found):
        raise _cannot("pyproject.toml does not list its dependencies as texts")
    lines = [" ".join(line.split()) for line in found]
    if any(line.startswith("-") for line in lines):
        raise _cannot("pyproject.toml has options for pip among its dependencies")
    return lines


def _pins(lock: dict[str, Any]) -> list[str]:
    """What a lock file takes from an index, where it knows only one version of it."""
    versions: dict[str, set[str]] = {}
    for each in lock.get("package", lock.get("packages", [])):
        if not isinstance(each, dict) or not _from_index(each):
            continue
        name, version = each.get("name"), each.get("version")
        if isinstance(name, str) and isinstance(version, str) and re.fullmatch(r"[\w.-]+", name):
            versions.setdefault(name, set()).add(version)
    single = {name: found.pop() for name, found in sorted(versions.items()) if len(found) == 1}
    return [f"{name}=={version}" for name, version in single.items() if re.fullmatch(r"[\w.+!-]+", version)]


def _from_index(package: dict[str, Any]) -> bool:
    source = package.get("source", {"registry": ""})
    of_registry = isinstance(source, dict) and ("registry" in source or source.get("type") == "legacy")
    return of_registry and not any(key in package for key in _ELSEWHERE)
