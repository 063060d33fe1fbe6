"""Make the folder of a stack: the private repository, the commit that the stack stands on, and `stack.json`.

A target's repository that cannot be used is no error: the stack then stands on the files alone, and why is written
down, because the result becomes a folder and a patch. The base is the target's HEAD, or one commit on top of it with
what was found. The target's filters never run. A file that git holds in another form than it lies in the working tree,
because of such a filter, is no uncommitted change: git keeps its form. Three forms are told apart:

- the same with Unix line ends (`autocrlf`, `eol=crlf`): it can be changed, and line ends are converted at the edge;
- a Git LFS pointer, or anything that the target's index calls unchanged since the checkout (`ident`, a `clean` filter,
  another encoding, a sparse checkout): it cannot be changed, because only the filter knows how to store it. A file
  under LFS that the user has changed keeps its old pointer in the branch; the trees at work hold it as it is.

Untracked files that are ignored, or larger than MAX_UNTRACKED_BYTES, stay out of git; they are in every tree.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict

from agent.records.atomic_file import write_atomically
from agent.repository.objects import Entry, add_to_index, hash_files, list_tree, write_object, write_tree
from agent.repository.target import ImportedTarget
from agent.repository.target_repository import TargetRepository, Unusable, read_repository
from tools.private_git import GitError, PrivateGit, listed
from tools.tree_removal import remove_tree

TOP = "refs/heads/stack"
REPOSITORY = "repository.git"
FACTS = "stack.json"
MAX_UNTRACKED_BYTES = 16 << 20
_MAX_TEXT_BYTES = 16 << 20
_MAX_INDEX_BYTES = 1 << 30
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


class StackFile(BaseModel):
    """`stack.json`: what does not change once the stack is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    format: int = 1
    target: str
    pristine: str
    base: str
    """The commit that the stack stands on."""
    head: str | None
    """HEAD of the target when it was imported; None without a repository, or before its first commit."""
    no_branch_because: str
    """Why the result cannot be a branch; empty when it can."""
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    crlf: tuple[str, ...] = ()
    """Files that git holds with \\n and the working tree with \\r\\n."""
    unchangeable: dict[str, str] = {}
    """Files that no commit of ours can change, and why."""
    too_large: tuple[str, ...] = ()
    """Untracked files that are not in the base for their size."""

    @property
    def uncommitted(self) -> int:
        """How many files differed from the target's HEAD; they are part of the base. 0 without a repository."""
        return len(self.modified) + len(self.deleted) + len(self.untracked) if self.head else 0


def make_stack_folder(folder: Path, imported: ImportedTarget, time_unix: int) -> StackFile:
    """The folder appears whole or not at all. Raises: GitError, DiskFull, OSError."""
    making = folder.with_name(f".{folder.name}.making")
    repository, because = _find_repository(imported.root)
    try:
        facts = _write_base(making, imported, repository, because, time_unix)
    except GitError as error:
        if repository is None:
            raise
        facts = _write_base(making, imported, None, f"its repository cannot be read ({error.message})", time_unix)
    write_atomically(making / FACTS, facts.model_dump_json(indent=1) + "\n")
    making.rename(folder)
    return facts


def _write_base(
    folder: Path, imported: ImportedTarget, repository: TargetRepository | None, no_branch_because: str, time_unix: int
) -> StackFile:
    """Make the repository with its base, and say how the working tree differs from HEAD."""
    remove_tree(folder)
    objects = [repository.objects] if repository else []
    object_format = repository.object_format if repository else "sha1"
    git = PrivateGit.create(folder / REPOSITORY, object_format=object_format, objects=objects)
    if repository and repository.shallow:
        (git.folder / "shallow").write_bytes(repository.shallow)
    comparison = _Comparison(git, imported, repository)
    base = comparison.base(time_unix)
    git.run("update-ref", TOP, base)
    return StackFile(
        target=str(imported.root),
        pristine=str(imported.tree),
        base=base,
        head=comparison.head,
        no_branch_because=no_branch_because,
        unchangeable=comparison.unchangeable,
        **{name: tuple(paths) for name, paths in comparison.found.items()},
    )


def _find_repository(target: Path) -> tuple[TargetRepository | None, str]:
    try:
        repository = read_repository(target)
    except Unusable as reason:
        return None, str(reason)
    if repository is not None:
        return repository, ""
    for parent in target.parents:
        if os.access(parent / ".git", os.F_OK):
            return None, f"the target is only a folder of the repository {parent}; name that as --target to get one"
    return None, "the target is no git repository"


class _Comparison:
    def __init__(self, git: PrivateGit, imported: ImportedTarget, repository: TargetRepository | None) -> None:
        self.git = git
        self.imported = imported
        self.repository = repository
        self.head = repository.head if repository else None
        self.held: dict[str, Entry] = list_tree(git, self.head) if self.head else {}
        self.files = imported.files
        self.links = {path: link.original for path, link in imported.links.items() if link.original}
        self.left_out = imported.not_imported.keys() | imported.links.keys() - self.links.keys()
        self.found = defaultdict[str, list[str]](list)
        self.unchangeable: dict[str, str] = {}

    def base(self, time_unix: int) -> str:
        entries = self.tracked()
        entries |= self.untracked()
        if self.head and entries == self.held:
            return self.head
        title = "Uncommitted changes as found" if self.head else "Files as found"
        parents = ("-p", self.head) if self.head else ()
        tree = write_tree(self.git, entries)
        return self.git.text("commit-tree", tree, *parents, "-m", title, time_unix=time_unix)

    def tracked(self) -> dict[str, Entry]:
        """What becomes of every path of HEAD."""
        candidates = [path for path in self.held if path in self.files]
        ids = hash_files(self.git, self.imported.tree, candidates)
        kept: dict[str, Entry] = {}
        changed: list[str] = []
        for path, entry in self.held.items():
            if entry.is_submodule or self.was_left_out(path):
                kept[path] = entry
                self.unchangeable[path] = "is a submodule" if entry.is_submodule else "was not copied"
            elif path in ids and entry.is_file:
                mode = self.mode(path, entry)
                if ids[path] == entry.object_id:
                    kept[path] = Entry(mode, entry.object_id)
                    if mode != entry.mode:
                        self.found["modified"].append(path)
                elif self.is_held_otherwise(path, entry):
                    kept[path] = entry
                else:
                    changed.append(path)
            elif path in ids:
                changed.append(path)
            elif path in self.links:
                kept[path] = self.link(path)
                if kept[path] != entry:
                    self.found["modified"].append(path)
            elif path in self.unchanged:
                kept[path] = entry
                self.unchangeable[path] = "is not checked out"
            else:
                self.found["deleted"].append(path)
        self.found["modified"] += changed
        written = hash_files(self.git, self.imported.tree, changed, write=True)
        for path, object_id in written.items():
            kept[path] = Entry(self.mode(path, self.held[path]), object_id)
        return kept

    def untracked(self) -> dict[str, Entry]:
        """Files that git does not ignore, as the target's and the user's ignore files have it."""
        apart = [f"{path}/" for path, entry in self.held.items() if entry.is_submodule]
        if self.repository:
            apart += [f"{path}/" for path in self.imported.nested_repositories]
        ignores = user_ignores(self.git) + (self.repository.exclude if self.repository else b"")
        (self.git.folder / "info" / "exclude").write_bytes(ignores)
        index = self.git.folder / "import-index"
        add_to_index(self.git, self.held, index)
        listing = ("ls-files", "--others", "--exclude-standard", "-z")
        said = self.git.run(*listing, index=index, worktree=self.imported.tree).stdout
        index.unlink(missing_ok=True)
        new = [path for path in said.decode().split("\0") if path and not path.startswith(tuple(apart))]
        sizes = {path: self.files[path].size for path in sorted(new) if path in self.files}
        self.found["too_large"] = [path for path, size in sizes.items() if size > MAX_UNTRACKED_BYTES]
        files = [path for path, size in sizes.items() if size <= MAX_UNTRACKED_BYTES]
        links = [path for path in new if path in self.links]
        self.found["untracked"] = sorted(files + links)
        written = hash_files(self.git, self.imported.tree, files, write=True)
        entries = {path: Entry(self.mode(path), object_id) for path, object_id in written.items()}
        return entries | {path: self.link(path) for path in links}

    def was_left_out(self, path: str) -> bool:
        try:
            path.encode()
        except UnicodeEncodeError:
            return True
        return path in self.left_out or any(str(parent) in self.left_out for parent in PurePosixPath(path).parents)

    def mode(self, path: str, held: Entry | None = None) -> str:
        if self.repository and not self.repository.file_mode:
            return held.mode if held is not None and held.is_file else "100644"
        return "100755" if self.files[path].executable else "100644"

    def link(self, path: str) -> Entry:
        return Entry("120000", write_object(self.git, self.links[path].encode()))

    def is_held_otherwise(self, path: str, entry: Entry) -> bool:
        """Whether the file is what git holds, in another form; notes which."""
        held = self.git.contents([entry.object_id], _MAX_TEXT_BYTES).get(entry.object_id, b"")
        if held.startswith(_LFS_POINTER):
            self.unchangeable[path] = "is stored with Git LFS"
        elif held and b"\r\n" not in held and self.files[path].size == len(held) + held.count(b"\n"):
            if (self.imported.tree / path).read_bytes() != held.replace(b"\n", b"\r\n"):
                return False
            self.found["crlf"].append(path)
        elif path in self.unchanged:
            self.unchangeable[path] = "is stored through a filter of the repository"
        else:
            return False
        return True

    @cached_property
    def unchanged(self) -> set[str]:
        """Paths of which the target's index says: as in HEAD, and not touched since. Empty where it cannot be read."""
        return _unchanged_by_index(self.git, self.repository, self.held) if self.repository else set()


def _unchanged_by_index(git: PrivateGit, repository: TargetRepository, held: Mapping[str, Entry]) -> set[str]:
    """Read a copy of the target's index with a git of ours: it compares sizes and times, and runs no filter."""
    index = git.folder / "target-index"
    source = repository.folder / "index"
    try:
        if source.is_symlink() or not source.is_file() or source.stat().st_size > _MAX_INDEX_BYTES:
            return set()
        shutil.copyfile(source, index)
        times = source.stat()
        os.utime(index, ns=(times.st_atime_ns, times.st_mtime_ns))  # git trusts entries older than their index
        staged = git.run("ls-files", "--stage", "-z", index=index).stdout
        listing = ("diff-files", "--name-only", "-z", "--ignore-submodules=all")
        touched = git.run(*listing, index=index, worktree=repository.worktree).stdout
    except (OSError, GitError):
        return set()
    finally:
        index.unlink(missing_ok=True)
    changed = set(touched.decode("utf-8", "surrogateescape").split("\0"))
    return {
        path
        for (mode, object_id, stage), path in listed(staged)
        if stage == "0" and path not in changed and held.get(path) == Entry(mode, object_id)
    }


def user_ignores(git: PrivateGit, environment: Mapping[str, str] = os.environ) -> bytes:
    """The lines of the user's own ignore file, so that a private note or key does not end up in a branch.

    The user's configuration is read as text, without what it includes; nothing else of it is taken.
    """
    home = Path(environment.get("HOME") or "/nonexistent")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    named = config / "ignore"
    for file in (config / "config", home / ".gitconfig"):
        with suppress(GitError):
            said = git.text("config", "--file", str(file), "--no-includes", "--get", "core.excludesFile")
            named = home / said[2:] if said.startswith("~/") else Path(said)
    try:
        lines = named.read_bytes() if named.is_file() else b""
    except OSError:
        return b""
    return lines if not lines or lines.endswith(b"\n") else lines + b"\n"
