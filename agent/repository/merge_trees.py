"""Carry a change over to another commit: the three-way merge of two commits and what they both come from.

Refuses to resolve anything: two changes of the same lines are a conflict, and a conflict is data.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agent.repository.objects import Entry, list_tree, read_objects, write_object, write_tree
from agent.repository.private_git import PrivateGit

_MAX_BYTES = 16 << 20


def merge_trees(git: PrivateGit, before: str, after: str, onto: str) -> tuple[str, list[str]]:
    """What `before` to `after` changed, applied to `onto`: the new tree, and the paths in conflict.

    With a conflict the tree is that of `onto`, unchanged. Raises: GitError, OSError.
    """
    base, theirs, ours = (list_tree(git, commit) for commit in (before, after, onto))
    merged = dict(ours)
    conflicts = []
    for path in sorted(base.keys() | theirs.keys()):
        old, new, here = base.get(path), theirs.get(path), ours.get(path)
        if new in (old, here):
            continue
        if here == old:
            result = new
        else:
            result = _merge_file(git, old, new, here)
            if result is None:
                conflicts.append(path)
        if result is None:
            merged.pop(path, None)
        else:
            merged[path] = result
    conflicts += [path for path in theirs.keys() & merged.keys() if _lies_in_a_file(path, merged)]
    if conflicts:
        return git.text("rev-parse", f"{onto}^{{tree}}"), sorted(set(conflicts))
    return write_tree(git, merged), []


def _merge_file(git: PrivateGit, old: Entry | None, new: Entry | None, here: Entry | None) -> Entry | None:
    """The merged file; None for a conflict, and for what was changed here and removed there."""
    if old is None or new is None or here is None or not (old.is_file and new.is_file and here.is_file):
        return None
    contents = read_objects(git, [here.object_id, old.object_id, new.object_id], _MAX_BYTES)
    if len(contents) < len({here.object_id, old.object_id, new.object_id}):
        return None
    merged = merge_contents(git, *(contents[entry.object_id] for entry in (here, old, new)))
    if merged is None:
        return None
    mode = new.mode if here.mode == old.mode else here.mode
    return Entry(mode, write_object(git, merged))


def merge_contents(git: PrivateGit, here: bytes, old: bytes, new: bytes) -> bytes | None:
    """What `old` to `new` changed, applied to `here`; None for a conflict. Raises: GitError, OSError."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, content in (("here", here), ("old", old), ("new", new)):
            (Path(folder) / name).write_bytes(content)
            names.append(str(Path(folder) / name))
        merged = git.run("merge-file", "-p", "-q", *names, accept=range(256))
    return None if merged.status else merged.stdout  # the number of conflicts; 255 for binary content


def _lies_in_a_file(path: str, entries: dict[str, Entry]) -> bool:
    return any(str(parent) in entries for parent in Path(path).parents)
