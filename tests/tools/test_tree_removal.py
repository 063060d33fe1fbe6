"""Whatever a worker leaves behind can be removed, and nothing outside of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.files import write_files
from tools.tree_removal import remove_tree


def nested(folder: Path, depth: int) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        os.mkdir("e", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_nothing_is_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    nested(tmp_path / "tree", 5 * sys.getrecursionlimit())
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_closed_folders_and_read_only_files_are_removed(tmp_path: Path) -> None:
    tree = write_files(tmp_path / "tree", {"a/b/c.txt": "", "a/x.txt": "", "y.txt": ""})
    (tree / "a/b/c.txt").chmod(0)
    for folder in (tree / "a/b", tree / "a", tree):
        folder.chmod(0o555 if folder == tree else 0)
    remove_tree(tree)
    assert not tree.exists()


def test_links_are_removed_and_not_what_they_lead_to(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"kept.txt": "kept"})
    tree = write_files(tmp_path / "tree", {"a/x.txt": ""})
    (tree / "a" / "link").symlink_to(outside)
    (tree / "link").symlink_to(outside / "kept.txt")
    remove_tree(tree)
    assert not tree.exists()
    tree.symlink_to(outside)
    with pytest.raises(OSError):
        remove_tree(tree)
    assert (outside / "kept.txt").read_text() == "kept"


def test_where_there_is_none_nothing_is_removed(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")
