"""What changes shows, even when its size and time are put back; what is only read does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.files import write_files
from tools.integrity import Manifest, hash_tree


def grown(folder: Path) -> Path:
    names = ("a.py", "pkg/b.py", "pkg/__pycache__/b.cpython-311.pyc", "empty/.keep", "my file ü.txt")
    write_files(folder, {name: name for name in names})
    (folder / "link").symlink_to("pkg")
    return folder


def rewrite_in_disguise(folder: Path) -> None:
    """Another content of the same size, under the old times and the same inode."""
    place = folder / "pkg" / "b.py"
    times = place.stat()
    with place.open("r+b") as file:
        file.write(b"PKG")
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))


def replace_by_a_copy(folder: Path) -> None:
    place = folder / "a.py"
    times = place.stat()
    (folder / "new").write_bytes(place.read_bytes())
    os.utime(folder / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
    (folder / "new").rename(place)


# What is done, and the start of the lines it must show in a manifest; None where contents stay the same.
DEEDS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a file is rewritten in disguise": (rewrite_in_disguise, ["changed pkg/b.py"]),
    "a file is replaced by a copy": (replace_by_a_copy, ["changed a.py"]),
    "a file is added": (lambda f: (f / "pkg" / "c.py").write_text(""), ["added pkg/c.py"]),
    "a file is removed": (lambda f: (f / "a.py").unlink(), ["removed a.py"]),
    "a file is renamed": (lambda f: (f / "a.py").rename(f / "z.py"), ["removed a.py", "added z.py"]),
    "compiled Python is forged": (
        lambda f: (f / "pkg/__pycache__/b.cpython-311.pyc").write_text("forged"),
        ["changed pkg/__pycache__/b.cpython-311.pyc"],
    ),
    "a mode changes": (lambda f: (f / "a.py").chmod(0o4755), ["changed a.py"]),
    "a folder is added": (lambda f: (f / "new").mkdir(), ["added new"]),
    "a folder's mode changes": (lambda f: (f / "pkg").chmod(0o777), ["changed pkg"]),
    "a link leads elsewhere": (lambda f: ((f / "link").unlink(), (f / "link").symlink_to("/etc")), ["changed link"]),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_manifest_and_a_tree_hash_show(deed: str, tmp_path: Path) -> None:
    folder = grown(tmp_path)
    before, digest = Manifest.take([folder]), hash_tree(folder)
    act, expected = DEEDS[deed]
    act(folder)
    found = [line.replace(f"{folder}/", "") for line in Manifest.take([folder]).changes(before)]
    assert sorted(found) == sorted(expected)
    assert (hash_tree(folder) == digest) is (deed == "a file is replaced by a copy")  # whose contents are the same


def test_reading_changes_nothing(tmp_path: Path) -> None:
    folder = grown(tmp_path)
    manifest, digest = Manifest.take([folder]), hash_tree(folder)
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()
    assert Manifest.take([folder]).changes(manifest) == []
    assert hash_tree(folder) == digest


def test_a_tree_hash_is_of_names_and_contents_wherever_the_tree_lies(tmp_path: Path) -> None:
    assert hash_tree(grown(tmp_path / "copy")) == hash_tree(grown(tmp_path / "another"))
    one, two = write_files(tmp_path / "one", {"ab": "c"}), write_files(tmp_path / "two", {"a": "bc"})
    assert hash_tree(one) != hash_tree(two)
    (one / "out").symlink_to("/proc")  # is not followed
    assert len(Manifest.take([one]).entries) == 3 and hash_tree(one)


def test_a_root_may_be_a_file_a_link_or_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    roots = [tmp_path / "file", tmp_path / "linked", tmp_path / "missing"]
    before = Manifest.take(roots)
    (tmp_path / "real" / "new.py").write_text("x")
    (tmp_path / "missing").mkdir()
    (tmp_path / "file").write_text("other")
    kinds = sorted(line.rsplit("/", 1)[1] for line in Manifest.take(roots).changes(before))
    assert kinds == ["file", "missing", "new.py"]


def test_what_is_removed_while_it_is_hashed_does_not_count(tmp_path: Path) -> None:
    whole, rest = grown(tmp_path / "whole"), grown(tmp_path / "rest")
    (rest / "a.py").unlink()
    shutil.rmtree(rest / "empty")

    def remove(path: Path) -> bool:
        if path.name == "a.py":
            path.unlink()
        if path.name == "empty":
            shutil.rmtree(path)
        return False

    assert hash_tree(whole, leave_out=remove) == hash_tree(rest)
