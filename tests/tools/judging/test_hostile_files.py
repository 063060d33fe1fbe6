"""What a worker writes is read without trust: no header, no name and no kind of file can do more than be refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.files import write_files
from tests.tools.judging.conftest import TENSOR, leaf, one_tensor, written
from tools.judging import accuracy, taking, tensors
from tools.judging.tensors import BadTensorFile
from tools.judging.verdict import Verdict
from tools.plain_text import plain
from tools.tree_removal import remove_tree

HEADERS: dict[str, Any] = {
    "no object": [],
    "no leaves": {"structure": TENSOR},
    "leaves that are none": {"structure": TENSOR, "leaves": 3},
    "a leaf that is none": {"structure": TENSOR, "leaves": ["x"]},
    "an incomplete leaf": {"structure": TENSOR, "leaves": [{"dtype": "float32"}]},
    "no structure": {"structure": 3, "leaves": []},
}
LEAVES: dict[str, dict[str, object]] = {
    "an offset that is no integer": {"offset": 0.5},
    "a length that is no integer": {"nbytes": 16.0},
    "a negative offset": {"offset": -8},
    "an offset past the end": {"offset": 8},
    "an extent that is a truth value": {"shape": [True, 4]},
    "a shape that is a word": {"shape": "ab"},
    "a shape that is endless": {"shape": [1] * 100_000},
    "extents that multiply beyond all numbers": {"shape": [1 << 61] * 60},
    "another length than its shape has": {"shape": [2, 4]},
    "a dtype nobody knows": {"dtype": "object"},
    "a dtype that is no name": {"dtype": ["float32"]},
    "strides that ask for more memory": {"stride": [1 << 40]},
    "too few strides": {"shape": [2, 2], "stride": [1]},
    "a class that is no name": {"kind": 5},
    "a class with a newline": {"kind": "Tensor\n"},
    "half a character": {"device": "\ud800"},
    "an endless name": {"kind": "x" * 10_000},
}


def test_an_honest_file_is_read_and_a_cut_one_is_not(tmp_path: Path) -> None:
    assert tensors.read(one_tensor(tmp_path / "x", shape=[2, 2])).leaves[0].shape == (2, 2)
    for size in (0, 4, 8, 20):
        (tmp_path / "x").write_bytes(struct.pack("<QQQ", 1 << 40, 0, 0)[:size])
        with pytest.raises(BadTensorFile):
            tensors.read(tmp_path / "x")


@pytest.mark.guard("links, pipes and forged headers for outputs")
@pytest.mark.parametrize("name", [*HEADERS, *LEAVES])
def test_a_file_is_refused_that_has(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(BadTensorFile):
        tensors.read(written(path, HEADERS[name]) if name in HEADERS else one_tensor(path, **LEAVES[name]))


def test_leaves_lie_one_after_the_other(tmp_path: Path) -> None:
    """Else a file of any length could be made out of nothing, or many leaves of the same bytes."""

    def two(offset: int) -> Path:
        structure = {"t": "tuple", "items": [TENSOR, {"t": "tensor", "i": 1}]}
        path = written(tmp_path / "x", {"structure": structure, "leaves": [leaf(), leaf(offset=offset)]})
        os.truncate(path, path.stat().st_size + offset)
        return path

    assert len(tensors.read(two(64)).leaves) == 2
    with pytest.raises(BadTensorFile, match="apart"):
        tensors.read(two(1 << 30))
    with pytest.raises(BadTensorFile, match="in each other"):
        tensors.read(written(tmp_path / "x", {"structure": TENSOR, "leaves": [leaf()] * 1000}))


def test_a_header_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    text = b'{"structure":' + b"[" * 1_000_000
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(BadTensorFile):
        tensors.read(tmp_path / "x")


@pytest.mark.guard("links, pipes and forged headers for outputs")
def test_what_is_no_plain_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(one_tensor(tmp_path / "secret"))
    (tmp_path / "folder").mkdir()
    for path in (*(tmp_path / name for name in ("pipe", "link", "folder", "missing")), Path("/dev/zero")):
        with pytest.raises(BadTensorFile):
            tensors.read(path)


@pytest.mark.parametrize(
    "structure",
    [
        {"t": "dict", "keys": ["a", "b"], "items": [TENSOR]},
        {"t": "dict", "keys": ["a"], "items": [{"t": "tensor", "i": 7}]},
        {"t": "dict", "keys": ["a"], "items": [{"t": "tensor", "i": "x"}]},
        {"t": "dict", "keys": ["a"], "items": [3]},
        {"t": "dict"},
        {"t": "list", "items": []},
    ],
)
def test_a_state_dict_that_names_what_is_not_there_is_refused(structure: object, tmp_path: Path) -> None:
    with pytest.raises(BadTensorFile):
        tensors.read(written(tmp_path / "x", {"structure": structure, "leaves": [leaf()]})).named()


def test_a_result_without_gradient_or_in_borrowed_memory_has_another_form(tmp_path: Path) -> None:
    plain, other, with_gradient = (
        tensors.read(one_tensor(tmp_path / str(index), **changes))
        for index, changes in enumerate(({}, {"borrowed": "argument 0"}, {"grad": True}))
    )
    assert "shares its memory with argument 0" in accuracy.same_form(other, plain)
    assert "no gradient" in accuracy.same_form(plain, with_gradient)
    assert "a gradient is kept" in accuracy.same_form(with_gradient, plain)
    assert accuracy.same_form(plain, other) == ""


def test_what_a_worker_says_of_itself_is_made_printable() -> None:
    assert plain("a\x1b[2Jb\ud800c\nd") == "a\ufffd[2Jb\ufffdc\nd"
    assert len(plain("x" * 10**6)) == 4000
    verdict = Verdict(name="wrong", reason="odd: \udcff", evidence={"changed": ["\udcff", {"\x1b": 1.5}]})
    assert "\udcff" not in verdict.model_dump_json() and verdict.evidence["changed"][1] == {"\ufffd": 1.5}


# -- compile caches


def copied(cache: Path) -> dict[str, bytes | None]:
    """What a copy of it holds; no contents for a folder."""
    taking.copy_folder(cache, into := cache.with_name("into"))
    return {str(p.relative_to(into)): p.read_bytes() if p.is_file() else None for p in into.rglob("*")}


@pytest.mark.guard("links in the compile cache")
def test_a_cache_is_copied_without_following_where_it_leads(tmp_path: Path) -> None:
    cache = write_files(tmp_path / "cache", {"inductor/kernel.so": "code"})
    write_files(tmp_path, {"secret": "a key"})
    (cache / "link").symlink_to(tmp_path / "secret")
    (cache / "up").symlink_to(tmp_path)
    os.mkfifo(cache / "pipe")
    assert copied(cache) == {"inductor": None, "inductor/kernel.so": b"code"}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cache").symlink_to(tmp_path)
    assert copied(tmp_path / "other" / "cache") == {}


def test_a_cache_of_names_too_long_for_the_machine_is_left_out(tmp_path: Path) -> None:
    cache = write_files(tmp_path / "cache", {"kept": "x"})
    here = os.open(cache, os.O_RDONLY)
    try:
        for _ in range(30):
            os.mkdir("n" * 200, dir_fd=here)
            below = os.open("n" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    assert copied(cache)["kept"] == b"x"
    remove_tree(cache)


def test_a_cache_is_copied_only_so_deep_and_only_so_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = write_files(tmp_path / "deep" / "x", {"/".join("d" * depth) + "/x": "" for depth in range(1, 100)})
    assert sum(content is not None for content in copied(deep).values()) == taking.MAX_CACHE_DEPTH
    many = write_files(tmp_path / "many" / "x", {f"{number}": "" for number in range(5)})
    monkeypatch.setattr(taking, "MAX_CACHE_FILES", 4)
    with pytest.raises(taking.TooMuch, match="4 files"):
        copied(many)
    sparse = write_files(tmp_path / "sparse" / "x", {"x": ""})
    os.truncate(sparse / "x", taking.MAX_CACHE_BYTES + 1)
    with pytest.raises(taking.TooMuch):
        copied(sparse)


def test_a_cache_brings_no_rights_along_and_keeps_its_times(tmp_path: Path) -> None:
    cache = write_files(tmp_path / "cache", {"program": "#!/bin/sh\n", "inductor/kernel.so": "code"})
    (cache / "program").chmod(0o6755)
    (cache / "inductor").chmod(0o3777)
    os.utime(cache / "program", ns=(10**18, 10**18))
    assert len(copied(cache)) == 3
    into = tmp_path / "into"
    modes = [(into / name).stat().st_mode & 0o7777 for name in ("program", "inductor/kernel.so", "inductor")]
    assert modes == [0o644, 0o644, 0o755]
    assert (into / "program").stat().st_mtime_ns == 10**18
