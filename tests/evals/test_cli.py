"""The command line of the evaluations tells what it was asked wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals import cli


@pytest.mark.parametrize("command", ["isa", "prompt-size"])
def test_a_file_that_is_not_there_is_wrong_usage(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, str(tmp_path / "none"), "--results-dir", str(tmp_path / "results")]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_file_that_is_no_recording_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "exchanges.jsonl").write_text("no JSON\n")
    assert cli.main(["prompt-size", str(tmp_path)]) == 2
    assert "is no recording that can be read" in capsys.readouterr().err
