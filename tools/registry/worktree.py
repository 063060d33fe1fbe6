"""The tree that one candidate is written in: a copy of the top of the stack, with copies of library modules.

Paths lead nowhere else. What no candidate may change cannot be changed here either, and files that are no text, or may
hold secrets of the target's owner by their names, are not shown.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tools.diff.patch import make_diff
from tools.diff.patch_rules import PatchRules, never_allowed
from tools.registry import ToolFault
from tools.rewrite import overlay

MAX_FILE_BYTES = 2 << 20
MAX_LISTED = 500
SEARCH_S = 20.0
FOUND_BYTES = 1 << 20  # of matching lines
_NOT_SHOWN = {".git", "__pycache__", ".ratchet"}
_SECRET_FOLDERS = {".ssh", ".aws", ".azure", ".gnupg", ".kube"}
_SECRET_NAMES = re.compile(
    r"(.+)?\.env|\.env\.(?!(example|sample|template|dist)$).+|\.?_?netrc|\.pgpass|\.pypirc|\.npmrc|\.htpasswd"
    r"|\.?(git-)?credentials(\.(json|toml|ya?ml|ini))?|\.?secrets?(\.(json|toml|ya?ml|ini))?"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.+\.(pem|key|p12|pfx|ppk|jks|keystore|kdbx)"
)


def may_hold_secrets(path: str) -> bool:
    """By its name, relative to the top of a tree, with `/`; code is never meant, since changes are made to it."""
    *folders, name = path.lower().rstrip("/").split("/")
    return bool(_SECRET_FOLDERS.intersection(folders)) or _SECRET_NAMES.fullmatch(name) is not None


@dataclass
class Worktree:
    """`work` is a writable copy of what `base`, the top of the stack, is with copies of library modules added."""

    base: Path
    work: Path
    rules: PatchRules
    touched: set[str] = field(default_factory=set)

    def files(self, below: str = "") -> list[str]:
        """Paths of all files, in order. Raises: ToolFault."""
        root = self._inside(below) if below else self.work
        if not root.is_dir():
            raise ToolFault(f"{below} is no folder.", "list_files without a path lists everything.")
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in _NOT_SHOWN)
            found += [(Path(folder) / name).relative_to(self.work).as_posix() for name in names]
        return sorted(found)

    def read(self, path: str) -> str:
        """A file's text, its line ends as they are. Raises: ToolFault."""
        place = self._shown(path)
        try:
            told = place.lstat()
            if not stat.S_ISREG(told.st_mode):
                raise ToolFault(f"{path} is no file.", "list_files lists what there is.")
            if told.st_size > MAX_FILE_BYTES:
                raise ToolFault(
                    f"{path} has {told.st_size} bytes, which is more than is read.", "Search in it instead."
                )
            return place.read_bytes().decode()
        except FileNotFoundError:
            raise ToolFault(f"There is no {path}.", self._like(path)) from None
        except UnicodeDecodeError:
            raise ToolFault(f"{path} is no text.") from None
        except OSError as error:
            raise ToolFault(f"{path} cannot be read: {error.strerror}.") from error

    def write(self, path: str, text: str | None) -> None:
        """Give a file this text; None removes it. Raises: ToolFault."""
        why = never_allowed(path) or self.rules.protected(path)
        if why:
            raise ToolFault(f"{path} stays as it is: {why}.", "Change the code that it uses instead.")
        place = self._shown(path)  # a diff would show what was there
        data = b"" if text is None else text.encode("utf-8", "replace")
        self.allow_size(path, len(data))
        self._allow_change(path, len(data))
        if place.is_dir():
            raise ToolFault(f"{path} is a folder.")
        if text is None:
            place.unlink(missing_ok=True)
        else:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            except (FileExistsError, NotADirectoryError):
                raise ToolFault(f"A part of {path} is a file, not a folder.") from None
            except UnicodeEncodeError:
                raise ToolFault("A name is text.") from None
        self.touched.add(path)

    def allow_size(self, path: str, size_bytes: int) -> None:
        """Raises: ToolFault when a file may not be so large."""
        if size_bytes > self.rules.max_file_bytes:
            raise ToolFault(f"{path} would have {size_bytes} bytes; {self.rules.max_file_bytes} are allowed.")

    def _allow_change(self, path: str, size_bytes: int) -> None:
        """By what a diff of all that was touched could be at most, before there is one: it is held in memory, more than
        once. Raises: ToolFault when it is too much with this file.
        """
        others = self.touched - {path}
        if len(others) >= self.rules.max_files:
            raise ToolFault(
                f"You have written to {len(others)} files, and no candidate changes more.",
                "One idea each: `reset` takes all changes back.",
            )
        before = sum(_size(self.base / name) for name in (*others, path))
        total = before + size_bytes + sum(_size(self.work / name) for name in others)
        if total > self.rules.max_diff_bytes:
            raise ToolFault(
                f"What you wrote to would come to {total} bytes, with what it takes the place of; "
                f"{self.rules.max_diff_bytes} are allowed for a candidate.",
                "Write less, or take changes back with `reset`.",
            )

    def search(self, pattern: str, below: str = "", *, literal: bool = False) -> list[str]:
        """`path:line:text` of lines that the extended regular expression matches, FOUND_BYTES of them at most.

        Files that may hold secrets are passed over without a note, from which they could be guessed. Raises: ToolFault.
        """
        if "\0" in pattern:
            raise ToolFault("A pattern has no NUL.")
        where = os.path.relpath(self._shown(below) if below else self.work, self.work)
        leave = [f"--exclude-dir={name}" for name in sorted(_NOT_SHOWN)]
        argv = ["grep", "-rnIHZ", "-F" if literal else "-E", *leave, "-e", pattern, "--", where]
        env = {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")}
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(
                argv, cwd=self.work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
            ) as grep,
        ):
            late = threading.Timer(SEARCH_S, grep.kill)
            late.start()
            try:
                assert grep.stdout is not None
                found = grep.stdout.read(FOUND_BYTES)
                if len(found) == FOUND_BYTES:
                    grep.kill()
                status = grep.wait()
            finally:
                late.cancel()
            if not found and status not in (0, 1):
                said.seek(0)
                why = said.read(500).decode("utf-8", "replace").strip().removeprefix("grep: ")
                raise ToolFault(
                    f"The search failed: {why or f'it took more than {SEARCH_S:.0f} s'}.",
                    "The pattern is an extended regular expression; with literal=true it is taken as it is.",
                )
        # A line may hold any other sign that ends one elsewhere, and a name even a newline.
        named = re.findall(r"(?:\./)?([^\0]+)\0([^\n]*?)\r?(?:\n|\Z)", found.decode("utf-8", "replace"))
        return [f"{path}:{line}" for path, line in named if not may_hold_secrets(path)]

    def diff(self) -> str:
        """What was changed, as a candidate: empty when nothing was."""
        contents: dict[str, str | bytes | None] = {}
        for path in sorted(self.touched):
            place = self.work / path
            contents[path] = place.read_bytes() if place.is_file() else None
        needed = [overlay.runtime(path) for path, content in contents.items() if content is not None]
        runtime = {path: text for files in needed for path, text in files.items()}
        return make_diff(self.base, {**runtime, **contents})

    def _shown(self, path: str) -> Path:
        place = self._inside(path)
        if may_hold_secrets(path):
            raise ToolFault(f"{path} is not shown: it may hold secrets.", "No change to the code needs it.")
        return place

    def _inside(self, path: str) -> Path:
        parts = path.rstrip("/").split("/")
        if not path or path.startswith("/") or any(part in ("", "..") for part in parts) or "\0" in path:
            raise ToolFault(f"{path!r} is no path inside the tree.", "Paths are relative to its top, with /.")
        place = self.work
        for part in parts:
            place = place / part
            try:
                link = place.is_symlink()
            except OSError as error:  # longer than any name may be
                raise ToolFault(f"{path[:200]} is no path: {error.strerror}.") from error
            if link:
                raise ToolFault(
                    f"{path} leads through the link {place.relative_to(self.work)}.",
                    "What it points to is not part of the tree.",
                )
        return place

    def _like(self, path: str) -> str:
        name = path.rsplit("/", 1)[-1]
        like = [each for each in self.files() if re.search(re.escape(name), each, re.IGNORECASE)][:5]
        return f"There is {', '.join(like)}." if like else "list_files lists what there is."


def _size(place: Path) -> int:
    """In bytes; nought where nothing is."""
    try:
        return place.lstat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0
