"""`agent verify` and `agent measure` ask the referee about one change, and say what a run would."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent import cli, judge
from agent.judge import NOT_KEPT
from tests.agent.llm.test_model_run import TARGET
from tests.agent.synthetic_clock import SyntheticClock
from tests.agent.test_bad_input import GOOD
from tests.files import write_files
from tools.diff.patch import make_diff
from tools.judging.open_referee import open_referee

FASTER = TARGET.replace("  # slow: .contiguous()", "")
WRONG = TARGET.replace("self.layer(x))", "self.layer(x) * 1.01)")


pytestmark = pytest.mark.usefixtures("forks")


def asked(what: str, tmp_path: Path, change: Path, *options: str) -> int:
    of = ["--target", str(tmp_path / "target"), "--entry", "bench.py", "--change", str(change)]
    return cli.main([what, *of, "--sandbox", "local", "--yes", "--python", sys.executable, *options])


@pytest.fixture
def patches(tmp_path: Path) -> dict[str, Path]:
    tree = write_files(tmp_path / "target", {"bench.py": TARGET})
    found = {}
    for name, text in {"faster": FASTER, "wrong": WRONG}.items():
        found[name] = tmp_path / f"{name}.patch"
        found[name].write_text(make_diff(tree, {"bench.py": text}))
    return found


@pytest.fixture
def measured_patches(patches: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """What a referee is asked to time costs what its source says."""

    def with_synthetic_clock(*arguments: Any, **keywords: Any) -> Any:
        referee = open_referee(*arguments, **keywords)
        referee.clock = SyntheticClock()
        return referee

    monkeypatch.setattr("agent.run.open_referee", with_synthetic_clock)
    return patches


def test_a_change_is_verified_as_a_patch_or_as_a_folder(
    tmp_path: Path, patches: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("verify", tmp_path, patches["faster"]) == 0
    assert capsys.readouterr().out.startswith("right: ")
    assert asked("verify", tmp_path, patches["wrong"], "--json") == NOT_KEPT
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == "wrong" and told["evidence"]
    folder = write_files(tmp_path / "other", {"bench.py": WRONG})
    assert asked("verify", tmp_path, folder) == NOT_KEPT
    assert capsys.readouterr().out.startswith("wrong: ")


def test_what_cannot_be_applied_is_said(tmp_path: Path, patches: dict[str, Path], capsys: Any) -> None:
    patches["faster"].write_text(patches["faster"].read_text().replace("torch.sigmoid", "torch.tanh"))
    assert asked("verify", tmp_path, patches["faster"]) == NOT_KEPT
    assert capsys.readouterr().out.startswith("broken: ")
    assert asked("verify", tmp_path, tmp_path / "none") == 2
    assert "neither a folder nor a patch" in capsys.readouterr().err


@pytest.mark.parametrize("end", [b"\r\n", b" \xe9\n", b"\rz\n"])
def test_a_patch_is_taken_to_the_byte(tmp_path: Path, end: bytes) -> None:
    write_files(tmp_path / "pristine", {"a.py": b"x = 1" + end})
    patch = b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1" + end + b"+x = 2" + end
    write_files(tmp_path, {"fix.patch": patch + b"--- /dev/null\n+++ b/b.py\n@@ -0,0 +1 @@\n+y" + end})
    assert judge._changed(tmp_path, tmp_path / "fix.patch") is None
    assert (tmp_path / "changed" / "a.py").read_bytes() == b"x = 2" + end
    assert (tmp_path / "changed" / "b.py").read_bytes() == b"y" + end


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_change_is_measured_by_the_rule_of_a_run_and_the_targets_own_tests_must_still_pass(
    tmp_path: Path, measured_patches: dict[str, Path], capsys: Any
) -> None:
    for name, status, told in (("faster", 0, "kept, 1.15"), ("wrong", NOT_KEPT, "wrong: ")):
        assert asked("measure", tmp_path, measured_patches[name]) == status
        assert capsys.readouterr().out.startswith(told)
    test = "import pathlib\n\ndef test_it():\n    assert 'slow' in pathlib.Path('bench.py').read_text()\n"
    write_files(tmp_path / "target", {"tests/test_it.py": test})
    assert asked("measure", tmp_path, measured_patches["faster"]) == NOT_KEPT
    assert "of the target's own tests no longer pass" in capsys.readouterr().out


def test_what_no_change_may_touch_is_refused(tmp_path: Path, patches: dict[str, Path], capsys: Any) -> None:
    other = write_files(tmp_path / "other", {"bench.py": FASTER, "tests/test_it.py": "def test_it(): pass\n"})
    assert asked("verify", tmp_path, other) == NOT_KEPT
    assert capsys.readouterr().out.startswith("refused: it touches tests/test_it.py")
    write_files(tmp_path / "target", {"bench.py": GOOD})
    changed = write_files(tmp_path / "changed", {"bench.py": GOOD.replace("4, 8", "2, 8")})
    assert asked("verify", tmp_path, changed) == NOT_KEPT
    assert "it touches bench.py: it is the entry" in capsys.readouterr().out


def test_what_differs_in_content_or_kind_or_is_missing_is_touched(tmp_path: Path) -> None:
    before = write_files(
        tmp_path / "pristine", {"same": b"\xff\0", "bytes": b"\xff\0", "gone": "", "kind": "", "link": ""}
    )
    after = write_files(tmp_path / "changed", {"same": b"\xff\0", "bytes": b"\xff\1", "new": "", "kind/deep": ""})
    (after / "link").symlink_to("nowhere")
    for tree in (before, after):
        os.utime(tree / "bytes", (0, 0))
    seen: list[str] = []
    assert judge._touched(tmp_path, seen.append) is None
    assert seen == ["bytes", "gone", "kind", "kind/deep", "link", "new"]
