"""What a tuner found is written into our kernels' own files, where it is worth it, and can be read back."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import assets
from tools.rewrite import CannotRewrite, launches
from tools.rewrite.ops_package import MARK
from tools.tuned import Launch, Tried, Tuned

FILE = "pkg/ratchet_ops/rms_norm.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "pkg" / "ratchet_ops"
    folder.mkdir(parents=True)
    for name in ("rms_norm", "gated_mul", "launching"):
        text = (assets.SKILLS / "triton-on-rocm" / "assets" / f"{name}.py").read_text()
        (folder / f"{name}.py").write_text(text)
    (folder / "__init__.py").write_text(f"{MARK}ratchet_ops.\n")
    (folder / "theirs.py").write_text('\nTUNED = Tuned({}, "")\n')
    return tmp_path


def launch(rows: int, columns: int, rule_us: float, *tried: tuple[int, float | None, int], file: str = FILE) -> Launch:
    """`tried`: number of warps, microseconds, spills."""
    choices = [Tried(choice={"num_warps": warps}, us=us, spills=spills) for warps, us, spills in tried]
    return Launch(file=file, run="_run", rows=rows, columns=columns, rule_us=rule_us, tried=choices)


def module(tree: Path, changed: dict[str, str]) -> Any:
    (tree / FILE).write_text(changed[FILE])
    package = f"tuned_{abs(hash(tree))}"
    sys.modules[package] = ModuleType(package)
    sys.modules[package].__path__ = [str((tree / FILE).parent)]
    return importlib.import_module(f"{package}.rms_norm")


def test_only_our_own_kernels_are_found(tree: Path) -> None:
    assert launches.find(tree) == ["pkg/ratchet_ops/gated_mul.py", FILE]


def test_the_fastest_launch_of_each_size_is_written(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        launch(32, 2048, 10.0, (4, 10.1, 0), (8, 8.0, 0), (16, 5.0, 12)),  # what spills is not taken
        launch(4096, 2048, 100.0, (4, 97.0, 0), (8, None, 0)),  # 3 % are not worth it
        launch(64, 512, 10.0, (4, 9.9, 0)),
    ]
    after = module(tree, launches.rewrite(tree, Tuned(device="A 'GPU'", launches=found)))
    tuned = after.TUNED
    assert tuned.by_size == {(32, 2048): {"num_warps": 8}, (4096, 2048): {}} and tuned.device == "A 'GPU'"
    assert launches.find(tree) == ["pkg/ratchet_ops/gated_mul.py"], "once"

    class Direct:
        pass

    monkeypatch.setattr(assets.beside(after, "launching"), "triton", type("triton", (), {"JITFunction": Direct}))
    monkeypatch.setattr(after.torch.cuda, "get_device_name", lambda: "A 'GPU'")
    rule = {"num_warps": 1}
    assert tuned.options(Direct(), 32, 2048, rule) == {"num_warps": 8}
    for rows, columns in ((31, 2048), (33, 2048), (4096, 2048), (4097, 2048), (32, 512)):
        assert tuned.options(Direct(), rows, columns, rule) == rule
    tuned.by_size[32, 2048] = {"num_warps": 2, "waves_per_eu": 2}
    assert tuned.options(Direct(), 32, 2048, rule) == {"num_warps": 2, "waves_per_eu": 2}
    assert tuned.options("as torch.compile wraps it", 32, 2048, rule) == {"num_warps": 2}
    monkeypatch.setattr(after.torch.cuda, "get_device_name", lambda: "another")
    assert tuned.options(Direct(), 32, 2048, rule) == rule


@pytest.mark.parametrize(
    "found",
    [
        [launch(32, 2048, 10.0, (8, 9.8, 0))],
        [launch(32, 2048, 10.0, (8, 5.0, 1))],
        [launch(32, 2048, 10.0, (8, 5.0, 0), file="pkg/ratchet_ops/theirs.py")],
        [launch(32, 2048, 10.0, (8, 5.0, 0), file="../elsewhere.py")],
        [],
    ],
    ids=["too little", "spills", "not ours", "outside", "none"],
)
def test_what_is_not_worth_it_or_not_ours_is_left_alone(tree: Path, found: list[Launch]) -> None:
    with pytest.raises(CannotRewrite, match="no launch was faster"):
        launches.rewrite(tree, Tuned(device="GPU", launches=found))


def test_where_two_kernels_of_a_file_share_a_size_the_longer_one_decides(tree: Path) -> None:
    found = [launch(32, 2048, 20.0, (8, 10.0, 0)), launch(32, 2048, 10.0, (4, 5.0, 0))]
    after = module(tree, launches.rewrite(tree, Tuned(device="GPU", launches=found)))
    assert after.TUNED.by_size == {(32, 2048): {"num_warps": 8}}
