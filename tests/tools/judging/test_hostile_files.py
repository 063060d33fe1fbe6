"""What a worker writes is read without trust: no header, no name and no kind of file can do more than be refused."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.files import write_files
from tools.judging import accuracy, taking, tensors
from tools.judging.tensors import BadTensorFile
from tools.judging.verdict import Verdict
from tools.plain_text import plain
from tools.tree_removal import remove_tree

LEAF = {
    "dtype": "float32",
    "shape": [2, 3],
    "offset": 0,
    "nbytes": 24,
    "device": "cpu",
    "kind": "Tensor",
    "stride": None,
}
TENSOR = {"t": "tensor", "i": 0}


def written(path: Path, header: object, data: bytes = bytes(24)) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def with_leaf(path: Path, **changes: object) -> Path:
    return written(path, {"structure": TENSOR, "leaves": [{**LEAF, **changes}]})


def test_an_honest_file_is_read(tmp_path: Path) -> None:
    assert tensors.read(with_leaf(tmp_path / "x")).leaves[0].shape == (2, 3)


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
    "a length that is no integer": {"nbytes": 24.0},
    "a negative offset": {"offset": -8},
    "an offset past the end": {"offset": 8},
    "an extent that is a truth value": {"shape": [True, 6]},
    "a shape that is a word": {"shape": "ab"},
    "a shape that is endless": {"shape": [1] * 100_000},
    "extents that multiply beyond all numbers": {"shape": [1 << 61] * 60},
    "another length than its shape has": {"shape": [2, 4]},
    "a dtype nobody knows": {"dtype": "object"},
    "a dtype that is no name": {"dtype": ["float32"]},
    "strides that ask for more memory": {"stride": [1 << 40, 1]},
    "too few strides": {"stride": [1]},
    "a class that is no name": {"kind": 5},
    "a class with a newline": {"kind": "Tensor\n"},
    "half a character": {"device": "\ud800"},
    "an endless name": {"kind": "x" * 10_000},
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.guard("links, pipes and forged headers for outputs")
def test_a_file_is_refused_that_has(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadTensorFile):
        tensors.read(written(tmp_path / "x", HEADERS[name]))


@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.guard("links, pipes and forged headers for outputs")
def test_a_file_is_refused_whose_leaf_has(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadTensorFile):
        tensors.read(with_leaf(tmp_path / "x", **LEAVES[name]))


def test_a_file_of_any_length_out_of_nothing_is_refused(tmp_path: Path) -> None:
    def two(offset: int) -> Path:
        structure = {"t": "tuple", "items": [TENSOR, {"t": "tensor", "i": 1}]}
        header = {"structure": structure, "leaves": [LEAF, {**LEAF, "offset": offset}]}
        path = written(tmp_path / "x", header, bytes(64))
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 64 + offset + 24)
        return path

    assert len(tensors.read(two(64)).leaves) == 2
    with pytest.raises(BadTensorFile, match="apart"):
        tensors.read(two(1 << 30))


def test_a_header_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    text = b'{"structure":' + b"[" * 1_000_000
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(BadTensorFile):
        tensors.read(tmp_path / "x")


@pytest.mark.parametrize("size", [0, 4, 8, 20])
def test_a_file_that_is_too_short_is_refused(size: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(struct.pack("<QQQ", 1 << 40, 0, 0)[:size])
    with pytest.raises(BadTensorFile):
        tensors.read(tmp_path / "x")


@pytest.mark.guard("links, pipes and forged headers for outputs")
def test_what_is_no_plain_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(with_leaf(tmp_path / "secret"))
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder", "missing"):
        with pytest.raises(BadTensorFile):
            tensors.read(tmp_path / name)
    with pytest.raises(BadTensorFile):
        tensors.read(Path("/dev/zero"))


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
        tensors.read(written(tmp_path / "x", {"structure": structure, "leaves": [LEAF]})).named()


def test_a_result_without_gradient_or_in_borrowed_memory_has_another_form(tmp_path: Path) -> None:
    plain = tensors.read(with_leaf(tmp_path / "a"))
    other = tensors.read(with_leaf(tmp_path / "b", borrowed="argument 0"))
    with_gradient = tensors.read(with_leaf(tmp_path / "c", grad=True))
    assert "shares its memory with argument 0" in accuracy.same_form(other, plain)
    assert "no gradient" in accuracy.same_form(plain, with_gradient)
    assert accuracy.same_form(plain, other) == accuracy.same_form(with_gradient, plain) == ""


@pytest.mark.guard("links in the compile cache")
def test_a_cache_is_copied_without_following_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a key")
    cache, into = tmp_path / "cache", tmp_path / "into"
    (cache / "inductor").mkdir(parents=True)
    into.mkdir()
    (cache / "inductor" / "kernel.so").write_text("code")
    (cache / "link").symlink_to(tmp_path / "secret")
    (cache / "up").symlink_to(tmp_path)
    os.mkfifo(cache / "pipe")
    taking.copy_folder(cache, into)
    assert [path.relative_to(into).as_posix() for path in sorted(into.rglob("*"))] == ["inductor", "inductor/kernel.so"]


@pytest.mark.guard("links in the compile cache")
def test_a_cache_that_is_itself_a_link_is_empty(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a key")
    (tmp_path / "cache").symlink_to(tmp_path)
    (tmp_path / "into").mkdir()
    taking.copy_folder(tmp_path / "cache", tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_what_a_worker_says_of_itself_is_made_printable() -> None:
    assert plain("a\x1b[2Jb\ud800c\nd") == "a\ufffd[2Jb\ufffdc\nd"
    assert len(plain("x" * 10**6)) == 4000


def test_a_verdict_can_be_written_whatever_names_the_candidate_chose() -> None:
    verdict = Verdict(name="wrong", reason="odd: \udcff", evidence={"changed": ["\udcff", {"\x1b": 1.5}]})
    assert "\udcff" not in verdict.model_dump_json() and verdict.evidence["changed"][1] == {"\ufffd": 1.5}


def test_a_cache_of_names_too_long_for_the_machine_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "kept").write_text("x")
    here = os.open(cache, os.O_RDONLY)
    try:
        for _ in range(30):
            os.mkdir("n" * 200, dir_fd=here)
            below = os.open("n" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    taking.copy_folder(cache, tmp_path / "into")
    assert (tmp_path / "into" / "kept").read_text() == "x"
    remove_tree(cache)


def test_a_cache_is_copied_only_so_deep_and_only_so_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = write_files(tmp_path / "deep", {"/".join("d" * depth) + "/x": "" for depth in range(1, 100)})
    taking.copy_folder(deep, tmp_path / "into")
    assert sum(path.is_file() for path in (tmp_path / "into").rglob("*")) == taking.MAX_CACHE_DEPTH
    many = write_files(tmp_path / "many", {f"{number}": "" for number in range(5)})
    monkeypatch.setattr(taking, "MAX_CACHE_FILES", 4)
    with pytest.raises(taking.TooMuch, match="4 files"):
        taking.copy_folder(many, tmp_path / "too-many")
    sparse = write_files(tmp_path / "sparse", {"x": ""})
    os.truncate(sparse / "x", taking.MAX_CACHE_BYTES + 1)
    with pytest.raises(taking.TooMuch):
        taking.copy_folder(sparse, tmp_path / "too-large")
