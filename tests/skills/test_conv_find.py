"""Convolutions are searched for where there is a GPU and nobody has decided otherwise."""

from __future__ import annotations

import pytest
import torch

from tests import assets

find = assets.load("amd-kernel-optimization", "conv_find").find_convolutions


@pytest.mark.parametrize(
    ("built", "hip", "variable", "deterministic", "searches"),
    [
        (True, None, "", "", True),
        (True, "7.1", "", "", True),
        (False, None, "", "", False),
        (True, "7.1", "NORMAL", "", False),
        (True, None, "NORMAL", "", True),
        (True, None, "", "algorithms", False),
        (True, None, "", "cudnn", False),
        (True, "7.1", "", "cudnn", False),
    ],
)
def test_it_says_so_only_where_it_counts(
    monkeypatch: pytest.MonkeyPatch, built: bool, hip: str | None, variable: str, deterministic: str, searches: bool
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic == "algorithms")
    monkeypatch.delenv("MIOPEN_FIND_MODE", raising=False)
    if variable:
        monkeypatch.setenv("MIOPEN_FIND_MODE", variable)
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    try:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, deterministic == "cudnn"
        find()
        assert torch.backends.cudnn.benchmark is searches
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before
