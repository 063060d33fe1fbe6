"""Versions of ROCm are read off its files, and a machine without it has none."""

from __future__ import annotations

from pathlib import Path

from tests.files import write_files
from tests.guest import module


def test_an_installation_is_read_from_its_files(tmp_path: Path) -> None:
    files = {
        ".info/version": "7.0.2-56\n",
        "lib/llvm/lib/clang/20/include/x.h": "",
        "lib/libhipblaslt.so": "",
        "lib/libhipblaslt.so.1": "",
        "lib/libhipblaslt.so.1.0.70002": "",
    }
    found = module("rocm").versions(str(write_files(tmp_path, files)))
    assert found == {"rocm": "7.0.2-56", "llvm": "20", "hipblaslt": "1.0.70002"}


def test_a_machine_without_rocm_has_no_versions_of_it(tmp_path: Path) -> None:
    assert module("rocm").versions(str(tmp_path)) == {"rocm": None, "llvm": None, "hipblaslt": None}
