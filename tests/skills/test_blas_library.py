"""A library is preferred where there is a GPU, unless the user has chosen one."""

from __future__ import annotations

import pytest
import torch

from tests import assets


@pytest.mark.parametrize(
    ("built", "variable", "wanted"),
    [(True, "", ["cublaslt"]), (False, "", []), (True, "TORCH_BLAS_PREFER_HIPBLASLT", [])],
)
def test_it_says_so_once_and_only_where_it_counts(
    monkeypatch: pytest.MonkeyPatch, built: bool, variable: str, wanted: list[str]
) -> None:
    said: list[str] = []
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", said.append)
    for name in ("TORCH_BLAS_PREFER_CUBLASLT", "TORCH_BLAS_PREFER_HIPBLASLT"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "0")
    assets.load("amd-kernel-optimization", "blas_library").prefer_blas("cublaslt")
    assert said == wanted


@pytest.mark.gpu
def test_torch_takes_the_names() -> None:
    before = torch.backends.cuda.preferred_blas_library()
    try:
        assets.load("amd-kernel-optimization", "blas_library").prefer_blas("cublaslt")
        assert "lt" in str(torch.backends.cuda.preferred_blas_library()).lower()
        x = torch.randn(33, 64, device="cuda")
        assert torch.allclose(x @ x.t(), (x.double() @ x.t().double()).float(), rtol=1e-2, atol=1e-2)
    finally:
        torch.backends.cuda.preferred_blas_library(before)
