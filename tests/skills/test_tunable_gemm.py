"""Off ROCm `tune_gemm` does nothing at all."""

from __future__ import annotations

import os

import pytest
import torch

from tests import assets


def test_it_does_nothing_where_there_is_nothing_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    asset = assets.load("amd-kernel-optimization", "tunable_gemm")
    monkeypatch.setattr(torch.cuda.tunable, "enable", lambda *_: pytest.fail("it was switched on"))
    monkeypatch.setattr(torch.version, "hip", None)
    asset.tune_gemm()


def test_a_users_own_choice_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asset = assets.load("amd-kernel-optimization", "tunable_gemm")
    monkeypatch.setattr(torch.cuda.tunable, "enable", lambda *_: pytest.fail("it was switched on"))
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", "0")
    asset.tune_gemm()


def test_on_rocm_it_tunes_without_writing_files(monkeypatch: pytest.MonkeyPatch) -> None:
    asset = assets.load("amd-kernel-optimization", "tunable_gemm")
    calls: list[tuple[str, object]] = []
    for name in ("enable", "tuning_enable", "set_filename", "set_max_tuning_duration", "set_rotating_buffer_size"):
        monkeypatch.setattr(torch.cuda.tunable, name, lambda value, name=name: calls.append((name, value)))
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.delenv("PYTORCH_TUNABLEOP_ENABLED", raising=False)
    asset.tune_gemm()
    asset.tune_gemm()
    assert ("enable", True) in calls and ("tuning_enable", True) in calls and ("set_filename", os.devnull) in calls
    assert len(calls) == 5, "once in a process"
