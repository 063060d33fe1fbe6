"""What a target says that it requires, gathered into two files of pip's format for an image that is built for it.

Does not run anything of the target, read what lies outside of it, or take addresses that hold a password.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.docker.progress import plain
from sandbox.errors import ImageBuildFailed

_MOST_BYTES = 4 << 20  # of all files together
_MOST_FILES = 50
_IN_PIPS_FORMAT = ("requirements.lock", "requirements.txt")  # the first that is there
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml")  # their versions bind what pyproject.toml requires
_ELSEWHERE = ("source", "git", "hg", "vcs", "url", "path", "directory", "archive", "virtual", "editable")
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

    files: tuple[str, ...]  # of the target, that were read
    lines: tuple[str, ...]
    constraints: tuple[str, ...]
    addresses: tuple[str, ...]  # named by them: indexes, repositories, archives
    left_out: tuple[str, ...]  # the target itself, and what lies on this disk

    def as_files(self) -> dict[str, bytes]:
        """For the folder of a build."""
        return {
            "requirements.txt": "".join(f"{line}\n" for line in self.lines).encode(),
            "constraints.txt": "".join(f"{line}\n" for line in self.constraints).encode(),
        }


def read(target: Path) -> Requirements:
    """Raises: ImageBuildFailed when there are none, or they cannot be taken as they are."""
    reading = _Reading(target)
    for name in _IN_PIPS_FORMAT:
        if os.path.lexists(target / name):
            reading.take(name, binding=False)
            return reading.found()
    if not os.path.lexists(target / "pyproject.toml"):
        raise ImageBuildFailed(
            f"{target} does not say what it requires: it has no {', '.join(_IN_PIPS_FORMAT)} or pyproject.toml",
            hint=_WRITE,
        )
    for line in _dependencies(reading.toml("pyproject.toml")):
        reading.take_line("pyproject.toml", line, binding=False)
    for name in _LOCKS:
        if os.path.lexists(target / name):
            for pin in _pins(reading.toml(name)):
                reading.take_line(name, pin, binding=True)
            break
    return reading.found()


class _Reading:
    """One pass through the files of a target."""

    def __init__(self, target: Path) -> None:
        self._root = os.path.realpath(target)
        self._left = _MOST_BYTES
        self._files, self._addresses, self._left_out = list[str](), list[str](), list[str]()
        self._lines: dict[bool, list[str]] = {False: [], True: []}  # True: only binding

    def found(self) -> Requirements:
        return Requirements(
            tuple(map(plain, self._files)),
            tuple(self._lines[False]),
            tuple(self._lines[True]),
            tuple(dict.fromkeys(self._addresses)),
            tuple(self._left_out),
        )

    def take(self, name: str, *, binding: bool) -> None:
        """A file in pip's format, with those it includes; `binding` for one that only constrains."""
        text = self._text(name)
        for line in _logical_lines(text):
            include = _INCLUDE.match(line)
            if include is None:
                self.take_line(name, line, binding=binding)
                continue
            if "://" in include[2]:
                raise ImageBuildFailed(f"{plain(name)} takes requirements from {plain(include[2])}", hint=_WRITE)
            other = os.path.normpath(os.path.join(os.path.dirname(name), include[2]))
            if other not in self._files:
                self.take(other, binding=binding or include[1] in ("-c", "--constraint"))

    def take_line(self, name: str, line: str, *, binding: bool) -> None:
        if _SECRET.search(line):
            raise ImageBuildFailed(
                f"{plain(name)} names an address with a password, a token or a variable: it would stay in the image",
                hint="Take it out, and give an index that needs none with --arg PIP_INDEX_URL=….",
            )
        place = _EDITABLE.match(line) or _SOURCE.match(line)
        if _is_local(place[1] if place else "" if line.startswith("-") else line):
            self._left_out.append(plain(line))
            return
        self._addresses += [plain(address) for address in _ADDRESS.findall(line)]
        self._lines[binding].append(line)

    def toml(self, name: str) -> dict[str, Any]:
        try:
            return tomllib.loads(self._text(name))
        except tomllib.TOMLDecodeError as error:
            raise ImageBuildFailed(f"{name} is not TOML: {plain(str(error))}", hint=_WRITE) from None

    def _text(self, name: str) -> str:
        if len(self._files) >= _MOST_FILES:
            raise ImageBuildFailed(
                f"more than {_MOST_FILES} files include each other for the requirements", hint=_WRITE
            )
        content = read_inside(self._root, name, self._left)
        self._left -= len(content)
        self._files.append(name)
        return content.decode(errors="replace")


def read_inside(root: str, name: str, at_most: int) -> bytes:
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
                raise ImageBuildFailed(f"{plain(name)} of the target is not a file", hint=_WRITE)
            content = held.enter_context(open(f"/proc/self/fd/{handle}", "rb")).read(at_most + 1)
        except OSError as error:
            raise ImageBuildFailed(
                f"{plain(name)} of the target cannot be read: {error.strerror}", hint=_WRITE
            ) from None
    if len(content) > at_most:
        raise ImageBuildFailed(f"what says what the target requires exceeds {_MOST_BYTES >> 20} MiB", hint=_WRITE)
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
        raise ImageBuildFailed("pyproject.toml leaves it to a tool to say what the target requires", hint=_WRITE)
    found = table.get("dependencies", [])
    if not isinstance(found, list) or not all(isinstance(line, str) for line in found):
        raise ImageBuildFailed("pyproject.toml does not list its dependencies as texts", hint=_WRITE)
    lines = [" ".join(line.split()) for line in found]
    if any(line.startswith("-") for line in lines):
        raise ImageBuildFailed("pyproject.toml has options for pip among its dependencies", hint=_WRITE)
    return lines


def _pins(lock: dict[str, Any]) -> list[str]:
    """What a lock file takes from an index, where it knows only one version of it."""
    versions: dict[str, set[str]] = {}
    for each in lock.get("package", lock.get("packages", [])):
        if not isinstance(each, dict) or any(_from_elsewhere(key, each) for key in _ELSEWHERE):
            continue
        name, version = each.get("name"), each.get("version")
        if isinstance(name, str) and isinstance(version, str) and re.fullmatch(r"[\w.-]+", name):
            versions.setdefault(name, set()).add(version)
    return [
        f"{name}=={version}"
        for name, (version, *others) in sorted((name, sorted(found)) for name, found in versions.items())
        if not others and re.fullmatch(r"[\w.+!-]+", version)
    ]


def _from_elsewhere(key: str, package: dict[str, Any]) -> bool:
    if key != "source":
        return key in package
    source = package.get("source", {"registry": ""})
    return not (isinstance(source, dict) and ("registry" in source or source.get("type") == "legacy"))
