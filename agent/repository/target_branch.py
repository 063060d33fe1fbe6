"""Write one branch into the target's repository: objects first, then the name.

Never runs git on it, never overwrites anything, and adds nothing but objects and one ref. A repository that cannot be
written to is left as it was, objects that no ref names apart, which git removes in time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.repository.private_git import PrivateGit
from agent.repository.target_repository import TargetRepository, Unusable, find_ref, packed_refs

_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_RUN_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


class NameTaken(Exception):
    """Another branch has the name, or stands in its way."""


def write_branch(git: PrivateGit, repository: TargetRepository, commit: str, run_id: str, head: str | None) -> str:
    """Make `commit` of the private repository, which stands on `head`, a branch of the target; returns its name.

    `ratchet/<id>` where that is free, else `ratchet/<id>-2` and so on; `ratchet-<id>` where a branch called `ratchet`
    leaves no room for those. A branch that is there and names the same commit is the result of an earlier try.
    Raises: Unusable, with the reason; GitError.
    """
    if not _RUN_ID.fullmatch(run_id) or ".." in run_id or run_id.endswith(".lock"):
        raise ValueError(f"not a run id: {run_id!r}")
    try:
        writer = _Writer(repository.common)
        writer.add_objects(git, commit, head)
        for name in _names(run_id):
            with contextlib.suppress(NameTaken):
                writer.add_branch(name, commit)
                return name
    except OSError as error:
        raise Unusable(f"its .git cannot be written to ({error.strerror})") from error
    raise Unusable(f"all the names that a branch of run {run_id} could have are taken")


@dataclass(frozen=True)
class _Writer:
    common: Path

    def add_objects(self, git: PrivateGit, commit: str, head: str | None) -> None:
        """Copy the objects of `commit` that the target does not have; all of them are loose in our repository."""
        excluded = ["--not", head] if head else []
        listed = git.text("rev-list", "--objects", "--no-object-names", commit, *excluded)
        for object_id in listed.split():
            place = Path("objects") / object_id[:2] / object_id[2:]
            source, to = git.folder / place, self.common / place
            if not source.exists() or to.exists():
                continue  # git did not store again what the target has
            self.folder(to.parent)
            with self.new_file(to.parent / f"tmp_obj_ratchet_{object_id[2:]}", source.read_bytes(), 0o444) as written:
                self.put(written, to)

    def add_branch(self, name: str, commit: str) -> None:
        """Raises: NameTaken, Unusable, OSError."""
        heads = self.common / "refs" / "heads"
        ref = f"refs/heads/{name}"
        in_the_way = [str(parent) for parent in Path(ref).parents if parent.is_relative_to("refs/heads")][:-1]
        below = [other for other in packed_refs(self.common) if other.startswith(f"{ref}/")]
        if below or (self.common / ref).is_dir() or any(find_ref(self.common, parent) for parent in in_the_way):
            raise NameTaken(name)
        if (there := find_ref(self.common, ref)) is not None:
            if there == commit:
                return
            raise NameTaken(name)
        self.folder((heads / name).parent)
        # git takes no file whose name starts with a dot for a ref.
        temporary = (heads / name).parent / f".{Path(name).name}.making"
        mode = (self.common / "HEAD").stat().st_mode & 0o666  # a shared repository's are writable for the group
        with self.new_file(temporary, f"{commit}\n".encode(), mode) as written:
            try:
                self.put(written, heads / name)
            except FileExistsError as error:
                raise NameTaken(name) from error

    def folder(self, folder: Path) -> None:
        """Make a folder as its parent is: the same owner and mode, so that a shared repository stays shared."""
        if folder.is_symlink():
            raise Unusable(f"its .git has a link in the place of the folder {folder.name}")
        if not folder.is_dir():
            self.folder(folder.parent)
            folder.mkdir()
            like = folder.parent.stat()
            folder.chmod(like.st_mode & 0o7777)
            _give(folder, like)

    @contextlib.contextmanager
    def new_file(self, path: Path, content: bytes, mode: int) -> Iterator[Path]:
        """A file on the disk under a name for the time being, which a killed process may have left before."""
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(descriptor, mode)
                _give(path, path.parent.stat())
                os.fsync(descriptor)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def put(self, written: Path, to: Path) -> None:
        """Give a file its name, unless something has it. Raises: FileExistsError, OSError."""
        try:
            to.hardlink_to(written)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if to.exists():
                raise FileExistsError(errno.EEXIST, "there already", str(to)) from error
            written.rename(to)
        descriptor = os.open(to.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _names(run_id: str) -> Iterator[str]:
    for separator in "/-":
        yield f"ratchet{separator}{run_id}"
        for number in range(2, 10):
            yield f"ratchet{separator}{run_id}-{number}"


def _give(path: Path, like: os.stat_result) -> None:
    """Root leaves no files of its own in a user's repository."""
    if os.geteuid() == 0 and like.st_uid != 0:
        os.chown(path, like.st_uid, like.st_gid, follow_symlinks=False)
