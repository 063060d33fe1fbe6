"""Find out what the target's `.git` says, and write one branch into it.

git never runs on it: git runs on a repository of ours whose objects and refs are links to the target's, so that none
of its configuration, hooks and attributes count. What it says is a claim of the target's author: a path that leads
anywhere else than to the target's own repository makes it unusable, and then the result is a folder and a patch.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.errors import DiskFull
from tools.private_git import GitError, PrivateGit

_MAX_SMALL_BYTES = 1 << 20
_KNOWN_EXTENSIONS = {"noop", "preciousobjects", "partialclone", "worktreeconfig", "objectformat", "refstorage"}
_KNOWN_EXTENSIONS |= {"relativeworktrees"}
_SHARED = re.compile(r"(?:group|all|world|everybody|true|[0-7]{1,4})")


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
    shared: str  # core.sharedRepository; empty where it is not set
    head: str | None  # the commit checked out; None before the first one
    shallow: bytes = field(default=b"", repr=False)
    exclude: bytes = field(default=b"", repr=False)

    @property
    def objects(self) -> Path:
        return self.common / "objects"

    def write_branch(self, git: PrivateGit, commit: str, run_id: str) -> str:
        """Make `commit` of the private repository, which stands on HEAD, a branch here; returns its name.

        Objects come first, then the name; nothing is overwritten. `ratchet/<id>` where that is free, else
        `ratchet/<id>-2` and so on; `ratchet-<id>` where a branch called `ratchet` leaves no room for those. A branch
        that is there and names the same commit is the result of an earlier try.
        Raises: Unusable, with the reason; GitError.
        """
        excluded = ("--not", self.head) if self.head else ()
        wanted = git.text("rev-list", "--objects", "--no-object-names", commit, *excluded).split()
        with _view(self.common, self.object_format, self.shared) as view:
            try:
                self._add_objects(git, view, wanted)
                for name in _names(run_id):
                    if self._add_ref(view, f"refs/heads/{name}", commit):
                        return name
            except (OSError, GitError, DiskFull) as error:
                said = error.strerror if isinstance(error, OSError) else error.message
                raise Unusable(f"its .git cannot be written to ({said})") from error
        raise Unusable(f"all the names that a branch of run {run_id} could have are taken")

    def _add_objects(self, git: PrivateGit, view: PrivateGit, wanted: Sequence[str]) -> None:
        """Those that are not there yet."""
        asked = "".join(f"{name}\n" for name in wanted).encode()
        there = view.text("cat-file", "--batch-check", stdin=asked)
        missing = [line.removesuffix(" missing") for line in there.split("\n") if line.endswith(" missing")]
        if not missing:
            return
        packed = git.run("pack-objects", "--stdout", "-q", stdin="".join(f"{name}\n" for name in missing).encode())
        places = [self.objects / name[:2] / name[2:] for name in missing]
        view.run("unpack-objects", "-q", stdin=packed.stdout)
        self._give({place.parent for place in places}.union(places))

    def _add_ref(self, view: PrivateGit, ref: str, commit: str) -> bool:
        """Whether the ref names the commit now; not where another has the name, or stands in its way."""
        if view.run("rev-parse", "--verify", "--quiet", ref, accept=(0, 1)).stdout.strip().decode() == commit:
            return True
        made = view.run("update-ref", ref, commit, "0" * len(commit), accept=range(256))
        if made.status and "Permission denied" in made.stderr:
            raise PermissionError(0, "Permission denied")
        if made.status == 0:
            heads = self.common / "refs" / "heads"
            self._give({self.common / ref, *(self.common / ref).parents} - {heads, *heads.parents})
        return made.status == 0

    def _give(self, places: set[Path]) -> None:
        """Root leaves no files of its own in a user's repository."""
        owner = self.common.stat()
        if os.geteuid() == 0 and owner.st_uid != 0:
            for place in places:
                if place.lstat().st_uid == 0:
                    os.chown(place, owner.st_uid, owner.st_gid, follow_symlinks=False)


def read_repository(target: Path) -> TargetRepository | None:
    """What `target/.git` says; None when there is none. Raises: Unusable, GitError."""
    try:
        if not (target / ".git").exists() and not (target / ".git").is_symlink():
            return None
        folder, common = _git_folders(target)
        settings = _settings(common)
        if folder == common != target / ".git":  # a submodule
            back = settings.get("core.worktree")
            if back is None or (folder / back).resolve() != target.resolve():
                raise Unusable(f"its .git points to {folder}, a repository that does not say that it belongs to it")
        object_format = _check_format(settings)
        for name in ("objects", "refs", "refs/heads"):
            if (common / name).is_symlink() or not (common / name).is_dir():
                raise Unusable(f"its .git has no plain folder `{name}`")
        _check_files(common / "objects", "objects")
        _check_files(common / "refs", "refs")
        read_plain_file(common / "packed-refs", 256 * _MAX_SMALL_BYTES)
        shared = settings.get("core.sharedrepository", "")
        return TargetRepository(
            worktree=target,
            folder=folder,
            common=common,
            object_format=object_format,
            file_mode=settings.get("core.filemode", "true").lower() not in ("false", "no", "off", "0"),
            shared=shared if _SHARED.fullmatch(shared) else "",
            head=_head(folder, common, object_format),
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


@contextmanager
def _view(common: Path, object_format: str, shared: str = "") -> Iterator[PrivateGit]:
    """A repository of ours whose objects and refs are those of another: its data, our configuration and no hooks."""
    with tempfile.TemporaryDirectory(prefix="ratchet-view-") as name:
        view = PrivateGit.create(Path(name), object_format=object_format)
        for data in ("objects", "refs"):
            shutil.rmtree(view.folder / data)
        for data in ("objects", "refs", "packed-refs"):
            (view.folder / data).symlink_to(common / data)
        if shared:
            with (view.folder / "config").open("a") as config:
                config.write(f"[core]\n\tsharedRepository = {shared}\n")
        yield view


def _git_folders(target: Path) -> tuple[Path, Path]:
    """The git folder and the common one. A `.git` file counts only if the repository knows the target, too."""
    dot_git = target / ".git"
    if dot_git.is_symlink():
        raise Unusable("its .git is a symbolic link")
    if dot_git.is_dir():
        if (dot_git / "commondir").exists():
            raise Unusable("its .git refers to another repository (commondir)")
        return dot_git, dot_git
    said = _text_of(dot_git) or ""
    if not said.startswith("gitdir: "):
        raise Unusable("its .git is neither a folder nor a pointer to one")
    folder = (target / said.removeprefix("gitdir: ")).resolve()
    if not folder.is_dir():
        raise Unusable(f"its .git points to {folder}, which is no folder")
    commondir = _text_of(folder / "commondir")
    if commondir is None:
        return folder, folder  # a submodule, if its core.worktree is the target: the caller looks
    common = (folder / commondir).resolve()
    back = _text_of(folder / "gitdir")
    if folder.parent != common / "worktrees" or not back or (folder / back).resolve() != dot_git.resolve():
        raise Unusable(f"its .git points to {folder}, which is not a worktree of a repository that knows it")
    return folder, common


def _text_of(path: Path) -> str | None:
    content = read_plain_file(path, _MAX_SMALL_BYTES)
    return None if content is None else content.decode("utf-8", "surrogateescape").rstrip("\n")


def _settings(common: Path) -> dict[str, str]:
    """Read by git as text alone, which executes and includes nothing."""
    text = read_plain_file(common / "config", _MAX_SMALL_BYTES)
    if text is None or _text_of(common / "HEAD") is None:
        raise Unusable("its .git is no complete repository")
    try:
        listing = ("config", "--file", "-", "--no-includes", "--null", "--list")
        with tempfile.TemporaryDirectory(prefix="ratchet-view-") as name:
            listed = PrivateGit.create(Path(name)).run(*listing, stdin=text).stdout
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


def _check_files(folder: Path, kind: str) -> None:
    """Only files and plain folders: git would wait for ever at a pipe, and write through a link."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as inside:
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.is_dir():
                    raise Unusable(f"its .git has a link in the place of the folder {entry.name}")
                elif not entry.is_file():
                    raise Unusable(f"its .git has a pipe or a device among its {kind} ({entry.name})")


def _head(folder: Path, common: Path, object_format: str) -> str | None:
    """The commit that is checked out, None before the first one."""
    said = _text_of(folder / "HEAD") or ""
    with _view(common, object_format) as view, suppress(GitError):
        (view.folder / "HEAD").write_text(said + "\n", encoding="utf-8", errors="surrogateescape")
        found = view.run("rev-parse", "--verify", "--quiet", "HEAD", accept=(0, 1)).stdout.decode().strip()
        if found:
            return found
        if view.run("check-ref-format", said.removeprefix("ref: "), accept=range(256)).status == 0:
            return None
        raise Unusable("its HEAD names no branch")
    raise Unusable("its HEAD names no commit")


def _names(run_id: str) -> Iterator[str]:
    for separator in "/-":
        yield f"ratchet{separator}{run_id}"
        for number in range(2, 10):
            yield f"ratchet{separator}{run_id}-{number}"
