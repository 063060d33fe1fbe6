"""Find out what the target's `.git` says, by reading its files.

Never runs git on it and never writes. What it says is a claim of the target's author: a path that leads anywhere
else than to the target's own repository makes it unusable, and then the result is a folder and a patch.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from agent.repository.private_git import GitError, PrivateGit

_MAX_SMALL_BYTES = 1 << 20
_MAX_PACKED_REFS_BYTES = 256 << 20
_KNOWN_EXTENSIONS = {"noop", "preciousobjects", "partialclone", "worktreeconfig", "objectformat", "refstorage"}
_KNOWN_EXTENSIONS |= {"relativeworktrees"}
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF_NAME = re.compile(r"refs/[^\x00-\x20~^:?*\[\\\x7f]+")


class Unusable(Exception):
    """The target's repository cannot take a branch; the message is the end of "no branch was written, because …"."""


@dataclass(frozen=True)
class TargetRepository:
    """What is known of the target's repository."""

    worktree: Path
    folder: Path  # its own git folder: HEAD and index
    common: Path  # where objects and refs are; another folder for a linked worktree
    object_format: str
    file_mode: bool  # whether the executable bit of its files means anything
    head: str | None  # the commit checked out; None before the first one
    shallow: bytes = field(default=b"", repr=False)
    exclude: bytes = field(default=b"", repr=False)

    @property
    def objects(self) -> Path:
        return self.common / "objects"


def read_repository(target: Path, scratch: PrivateGit) -> TargetRepository | None:
    """What `target/.git` says; None when there is none.

    `scratch` is any repository of ours, to have git read the text of the configuration, which executes nothing.
    Raises: Unusable.
    """
    try:
        if not (target / ".git").exists() and not (target / ".git").is_symlink():
            return None
        folder, common = _git_folders(target)
        settings = _settings(common, scratch)
        if folder == common != target / ".git":  # a submodule
            back = settings.get("core.worktree")
            if back is None or (folder / back).resolve() != target.resolve():
                raise Unusable(f"its .git points to {folder}, a repository that does not say that it belongs to it")
        object_format = _check_format(settings)
        for name in ("objects", "refs", "refs/heads"):
            if (common / name).is_symlink() or not (common / name).is_dir():
                raise Unusable(f"its .git has no plain folder `{name}`")
        _check_objects(common / "objects")
        return TargetRepository(
            worktree=target,
            folder=folder,
            common=common,
            object_format=object_format,
            file_mode=settings.get("core.filemode", "true").lower() not in ("false", "no", "off", "0"),
            head=_head(folder, common, 64 if object_format == "sha256" else 40),
            shallow=read_plain_file(common / "shallow", _MAX_SMALL_BYTES * 16) or b"",
            exclude=read_plain_file(common / "info" / "exclude", _MAX_SMALL_BYTES) or b"",
        )
    except OSError as error:
        raise Unusable(f"its .git cannot be read ({error.strerror}: {error.filename})") from error


def read_plain_file(path: Path, max_bytes: int) -> bytes | None:
    """The content of a regular file, None when there is none. Raises: Unusable, OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            return None
        if not stat.S_ISREG(mode):
            raise Unusable(f"its .git has a pipe or a device in the place of the file `{path.name}`")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise Unusable(f"the file `{path.name}` in its .git is larger than any such file should be")
    return content


def find_ref(common: Path, name: str) -> str | None:
    """What the ref `name` holds, an object id or `ref: …`; loose before packed. Raises: Unusable, OSError."""
    loose = read_plain_file(common / name, _MAX_SMALL_BYTES)
    if loose is not None:
        return loose.decode("utf-8", "replace").strip()
    return packed_refs(common).get(name)


def packed_refs(common: Path) -> dict[str, str]:
    """The refs in `packed-refs`, by name. Raises: Unusable, OSError."""
    packed = read_plain_file(common / "packed-refs", _MAX_PACKED_REFS_BYTES) or b""
    lines = (line.split(" ", 1) for line in packed.decode("utf-8", "surrogateescape").split("\n"))
    return {parts[1]: parts[0] for parts in lines if len(parts) == 2 and not parts[0].startswith(("#", "^"))}


def _git_folders(target: Path) -> tuple[Path, Path]:
    """The git folder and the common one. A `.git` file counts only if the repository knows the target, too."""
    dot_git = target / ".git"
    if dot_git.is_symlink():
        raise Unusable("its .git is a symbolic link")
    if dot_git.is_dir():
        if (dot_git / "commondir").exists():
            raise Unusable("its .git refers to another repository (commondir)")
        return dot_git, dot_git
    said = (read_plain_file(dot_git, _MAX_SMALL_BYTES) or b"").decode("utf-8", "surrogateescape")
    if not said.startswith("gitdir: "):
        raise Unusable("its .git is neither a folder nor a pointer to one")
    folder = (target / said.removeprefix("gitdir: ").rstrip("\n")).resolve()
    if not folder.is_dir():
        raise Unusable(f"its .git points to {folder}, which is no folder")
    commondir = read_plain_file(folder / "commondir", _MAX_SMALL_BYTES)
    if commondir is None:
        return folder, folder  # a submodule, if its core.worktree is the target: the caller looks
    common = (folder / commondir.decode("utf-8", "surrogateescape").rstrip("\n")).resolve()
    back = (read_plain_file(folder / "gitdir", _MAX_SMALL_BYTES) or b"").decode("utf-8", "surrogateescape").rstrip("\n")
    if folder.parent != common / "worktrees" or not back or (folder / back).resolve() != dot_git.resolve():
        raise Unusable(f"its .git points to {folder}, which is not a worktree of a repository that knows it")
    return folder, common


def _settings(common: Path, scratch: PrivateGit) -> dict[str, str]:
    text = read_plain_file(common / "config", _MAX_SMALL_BYTES)
    if text is None or read_plain_file(common / "HEAD", _MAX_SMALL_BYTES) is None:
        raise Unusable("its .git is no complete repository")
    try:
        listed = scratch.run("config", "--file", "-", "--no-includes", "--null", "--list", stdin=text).stdout
    except GitError as error:
        raise Unusable("its .git/config cannot be read") from error
    pairs = (entry.partition("\n") for entry in listed.decode("utf-8", "surrogateescape").split("\0") if entry)
    return {name: value for name, _, value in pairs}


def _check_format(settings: dict[str, str]) -> str:
    version = settings.get("core.repositoryformatversion", "0")
    if version not in ("0", "1"):
        raise Unusable(f"its repository has the unknown format version {version}")
    extensions = {
        name.removeprefix("extensions."): value for name, value in settings.items() if name.startswith("extensions.")
    }
    if extensions.get("refstorage", "files").lower() != "files":
        raise Unusable(f"its repository keeps its branches as {extensions['refstorage']}, which Ratchet cannot write")
    if unknown := sorted(extensions.keys() - _KNOWN_EXTENSIONS):
        raise Unusable(f"its repository uses the unknown extension {unknown[0]}")
    object_format = extensions.get("objectformat", "sha1").lower()
    if object_format not in ("sha1", "sha256"):
        raise Unusable(f"its repository uses the unknown object format {object_format}")
    return object_format


def _check_objects(objects: Path) -> None:
    """Only files and folders: git would wait for ever at a pipe."""
    waiting = [objects]
    while waiting:
        with os.scandir(waiting.pop()) as inside:
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_file():
                    raise Unusable(f"its .git has a pipe or a device among its objects ({entry.name})")


def _head(folder: Path, common: Path, id_length: int) -> str | None:
    said = (read_plain_file(folder / "HEAD", _MAX_SMALL_BYTES) or b"").decode("utf-8", "replace").strip()
    for _ in range(5):  # as deep as git follows
        if not said.startswith("ref: "):
            break
        name = said.removeprefix("ref: ").strip()
        if not _REF_NAME.fullmatch(name) or ".." in name:
            raise Unusable("its HEAD names no branch")
        found = find_ref(common, name)
        if found is None:
            return None
        said = found
    if not _OBJECT_ID.fullmatch(said) or len(said) != id_length:
        raise Unusable("its HEAD names no commit")
    return said
