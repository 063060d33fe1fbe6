"""Settings for the whole process are made only where they count and where the user has decided nothing."""

from __future__ import annotations

import os

import pytest
import torch

from tests import assets

SETTERS = ("enable", "tuning_enable", "set_filename", "set_max_tuning_duration", "set_rotating_buffer_size")


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
def test_convolutions_are_searched_for(
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
        assets.load("amd-kernel-optimization", "conv_find").find_convolutions()
        assert torch.backends.cudnn.benchmark is searches
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before


@pytest.mark.parametrize(("hip", "variable", "tunes"), [(None, "", False), ("7.0", "0", False), ("7.0", "", True)])
def test_products_are_tuned_on_rocm(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, variable: str, tunes: bool
) -> None:
    asset = assets.load("amd-kernel-optimization", "tunable_gemm")
    calls: list[tuple[str, object]] = []
    for name in SETTERS:
        monkeypatch.setattr(torch.cuda.tunable, name, lambda value, name=name: calls.append((name, value)))
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.delenv("PYTORCH_TUNABLEOP_ENABLED", raising=False)
    if variable:
        monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", variable)
    asset.tune_gemm()
    asset.tune_gemm()
    assert {("enable", True), ("tuning_enable", True), ("set_filename", os.devnull)} <= set(calls) or not tunes
    assert len(calls) == (len(SETTERS) if tunes else 0), "once in a process"
