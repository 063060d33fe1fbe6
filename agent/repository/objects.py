"""Objects of a private repository, in and out: trees, blobs and the names they have, and merges of trees.

Contents go in as bytes and come out as the same bytes: no attribute applies.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.private_git import PrivateGit, listed, quoted

_MAX_LISTING_BYTES = 64 << 20  # some 500,000 files; a few trees that hold each other can name billions
_MAX_MERGED_BYTES = 16 << 20
_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One name in a tree."""

    mode: str  # 100644, 100755, 120000 (link) or 160000 (submodule)
    object_id: str

    @property
    def is_file(self) -> bool:
        return self.mode.startswith("100")

    @property
    def is_submodule(self) -> bool:
        return self.mode == "160000"


def list_tree(git: PrivateGit, tree: str) -> dict[str, Entry]:
    """Every file of a commit or tree, by path. Raises: GitError."""
    said = git.run("ls-tree", "-r", "-z", "--full-tree", tree, max_output_bytes=_MAX_LISTING_BYTES).stdout
    return {path: Entry(mode, object_id) for (mode, _, object_id), path in listed(said)}


def write_tree(git: PrivateGit, entries: Mapping[str, Entry], index: Path | None = None) -> str:
    """The id of a tree with these entries, over those of `index`; objects it names need not be there.

    Raises: GitError, DiskFull, OSError.
    """
    if index is None:
        index = git.folder / "tree-index"
        index.unlink(missing_ok=True)
    add_to_index(git, entries, index)
    return git.text("write-tree", "--missing-ok", index=index, alone=True)


def add_to_index(git: PrivateGit, entries: Mapping[str, Entry], index: Path) -> None:
    """Put entries into the index file `index`, a new one where there is none. Raises: GitError, DiskFull."""
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
    options = ("-w",) if write else ()
    given = b"".join(quoted(f"{folder}/{path}") + b"\n" for path in paths)
    said = git.text("hash-object", *options, "--no-filters", "--stdin-paths", stdin=given, alone=True)
    return dict(zip(paths, said.split("\n"), strict=True))


def merge_trees(git: PrivateGit, before: str, after: str, onto: str) -> tuple[str, list[str]]:
    """What `before` to `after` changed, applied to `onto`: the new tree, and the paths in conflict.

    Two changes of the same lines are a conflict; then the tree is that of `onto`, unchanged. Raises: GitError, OSError.
    """
    index = git.folder / "merge-index"
    index.unlink(missing_ok=True)
    git.run("read-tree", "-i", "-m", "--aggressive", before, onto, after, index=index)
    unmerged: dict[str, dict[str, Entry]] = {}
    for (mode, object_id, stage), path in listed(git.run("ls-files", "--unmerged", "-z", index=index).stdout):
        unmerged.setdefault(path, {})[stage] = Entry(mode, object_id)
    merged = {path: file for path, sides in unmerged.items() if (file := _merge_file(git, sides))}
    if conflicts := sorted(unmerged.keys() - merged.keys()):
        return git.text("rev-parse", f"{onto}^{{tree}}"), conflicts
    return write_tree(git, merged, index), []


def _merge_file(git: PrivateGit, sides: Mapping[str, Entry]) -> Entry | None:
    """The merged file; None for a conflict, and for what was changed here and removed there."""
    if len(sides) < 3 or not all(entry.is_file for entry in sides.values()):
        return None
    old, here, new = (sides[stage] for stage in "123")
    ids = [entry.object_id for entry in (here, old, new)]
    contents = git.contents(ids, _MAX_MERGED_BYTES)
    merged = merge_contents(git, *(contents[name] for name in ids)) if contents.keys() == {*ids} else None
    if merged is None:
        return None
    return Entry(new.mode if here.mode == old.mode else here.mode, write_object(git, merged))


def merge_contents(git: PrivateGit, here: bytes, old: bytes, new: bytes) -> bytes | None:
    """What `old` to `new` changed, applied to `here`; None for a conflict. Raises: GitError, OSError.

    Changes of lines that touch are no conflict here; in git they are.
    """
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, content in (("here", here), ("old", old), ("new", new)):
            (Path(folder) / name).write_bytes(content)
            names.append(str(Path(folder) / name))
        merged = git.run("merge-file", "-p", "-q", *names, accept=range(256))
        if merged.status == 255:  # binary content
            return None
        return merged.stdout if merged.status == 0 else _merge_touching(git, *names)


def _merge_touching(git: PrivateGit, here: str, old: str, new: str) -> bytes | None:
    """The merged file of three files; None where both sides change a line, or add lines at one place."""
    edits = sorted({*_edits(git, old, here), *_edits(git, old, new)})  # an edit of both sides is one
    for (start, end, _), (next_start, _, _) in itertools.pairwise(edits):
        if next_start < end or start == end == next_start:
            return None
    merged = _lines(old)
    for start, end, added in reversed(edits):
        merged[start:end] = [added]
    return b"".join(merged)


def _edits(git: PrivateGit, old: str, new: str) -> list[tuple[int, int, bytes]]:
    """[(first line that goes, the one after the last, what comes in their place)], counted from 0."""
    shown = git.run("diff", "--no-index", "-U0", "--text", "--no-ext-diff", old, new, accept=(0, 1)).stdout
    lines, found = _lines(new), []
    for hunk in _HUNK.finditer(shown):
        at, gone, place, come = (1 if part is None else int(part) for part in hunk.groups())
        start, first = at - (gone > 0), place - (come > 0)  # of no lines, git names the one before them
        found.append((start, start + gone, b"".join(lines[first : first + come])))
    return found


def _lines(file: str) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", Path(file).read_bytes())
