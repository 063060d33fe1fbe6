"""Where nothing can be judged right, no referee is opened."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools.errors import ToolError
from tools.judging.open_referee import open_referee

SANDBOX: Any = None  # nothing is started


def test_a_folder_that_may_hold_no_programs_is_refused_before_anything_is_judged_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = os.ST_NOEXEC | os.ST_NOSUID
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_flag=flags if folder == tmp_path else 0))
    with pytest.raises(ToolError, match="lies on a file system that is mounted noexec") as caught:
        open_referee(tmp_path, "bench.py", python="python3", sandbox=SANDBOX, scratch=tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "--runs-dir" in caught.value.hint and "TMPDIR" in caught.value.hint
    assert [*tmp_path.iterdir()] == []
