"""Objects of a private repository, in and out: trees, blobs and the names they have.

Refuses to know what they mean. Contents go in as bytes and come out as the same bytes: no attribute applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.repository.private_git import PrivateGit

_MAX_LISTING_BYTES = 64 << 20  # some 500,000 files; a few trees that hold each other can name billions


@dataclass(frozen=True)
class Entry:
    """One name in a tree."""

    mode: str  # 100644, 100755, 120000 (link) or 160000 (submodule)
    object_id: str

    @property
    def is_file(self) -> bool:
        return self.mode.startswith("100")

    @property
    def is_link(self) -> bool:
        return self.mode == "120000"

    @property
    def is_submodule(self) -> bool:
        return self.mode == "160000"


def list_tree(git: PrivateGit, tree: str) -> dict[str, Entry]:
    """Every file of a commit or tree, by path. Raises: GitError."""
    said = git.run("ls-tree", "-r", "-z", "--full-tree", tree, max_output_bytes=_MAX_LISTING_BYTES).stdout
    listed = said.decode("utf-8", "surrogateescape")
    entries = {}
    for line in listed.split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _, object_id = facts.split(" ")
            entries[path] = Entry(mode, object_id)
    return entries


def write_tree(git: PrivateGit, entries: Mapping[str, Entry]) -> str:
    """The id of a tree with these entries; objects it names need not be there. Raises: GitError, DiskFull."""
    index = git.folder / "tree-index"
    fill_index(git, entries, index)
    tree = git.text("write-tree", "--missing-ok", index=index, alone=True)
    index.unlink()
    return tree


def fill_index(git: PrivateGit, entries: Mapping[str, Entry], index: Path) -> None:
    """Make `index` an index file with these entries and no others. Raises: GitError, DiskFull."""
    index.unlink(missing_ok=True)
    lines = "".join(f"{entry.mode} {entry.object_id}\t{path}\0" for path, entry in entries.items())
    given = lines.encode("utf-8", "surrogateescape")
    git.run("update-index", "-z", "--index-info", stdin=given, index=index, alone=True)


def write_object(git: PrivateGit, content: bytes) -> str:
    """Raises: GitError, DiskFull."""
    return git.text("hash-object", "-w", "--stdin", stdin=content, alone=True)


def hash_files(git: PrivateGit, folder: Path, paths: Sequence[str], *, write: bool = False) -> dict[str, str]:
    """The object ids of regular files below `folder`; `write` stores them, too. Raises: GitError, DiskFull."""
    if not paths:
        return {}
    names = "".join(_line(f"{folder}/{path}") for path in paths)
    options = ("-w",) if write else ()
    given = names.encode("utf-8", "surrogateescape")
    said = git.text("hash-object", *options, "--no-filters", "--stdin-paths", stdin=given, alone=True)
    return dict(zip(paths, said.split("\n"), strict=True))


def read_objects(git: PrivateGit, object_ids: Iterable[str], max_bytes: int) -> dict[str, bytes]:
    """The contents of blobs, by id; those that are missing or larger than `max_bytes` are left out.

    Raises: GitError.
    """
    asked = "".join(f"{object_id}\n" for object_id in dict.fromkeys(object_ids)).encode()
    checked = git.text("cat-file", "--batch-check", stdin=asked)
    small = []
    for line in checked.split("\n"):
        parts = line.split(" ")
        if len(parts) == 3 and parts[1] == "blob" and int(parts[2]) <= max_bytes:
            small.append(parts[0])
    contents: dict[str, bytes] = {}
    if not small:
        return contents
    said = git.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in small).encode()).stdout
    at = 0
    for name in small:
        end = said.index(b"\n", at)
        size = int(said[at:end].split(b" ")[2])
        contents[name] = said[end + 1 : end + 1 + size]
        at = end + 1 + size + 1
    return contents


def _line(path: str) -> str:
    """git reads one path a line, and takes a carriage return for part of its end; a quote has to be quoted as well."""
    if any(sign in path for sign in '\n\r"'):
        for sign, quoted in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
            path = path.replace(sign, quoted)
        path = f'"{path}"'
    return path + "\n"
