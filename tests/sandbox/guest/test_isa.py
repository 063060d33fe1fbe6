"""In the target's interpreter: how a kernel is described, and how a launch is caught before it happens."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.files import write_files
from tests.guest import FOLDER, module

pytestmark = pytest.mark.slow

pytest.importorskip("triton")
TARGET = {"name": "gfx942", "wave_size": 64, "lds_bytes": 65536, "compute_units": 304}
KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale(
    x_ptr: "*bf16", y_ptr: "const *fp32", mask_ptr, n: "i32:16", stride: "i32:1", m: tl.int64, by: float, flag: bool,
    BLOCK: tl.constexpr = 256, KIND: tl.constexpr = None,
):
    pass
"""
LAUNCH = """
import torch
from kernels import add

def run(x):
    assert x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available() and torch.version.hip
    assert torch.cuda.get_device_properties(x.device).gcnArchName == "gfx942"
    add[(4,)](x, x[1:], x.numel(), 1, 3.5, BLOCK=64, num_warps=2)
"""
ADD = """
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, n, one, by, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(y_ptr + at * one) + by, mask=at < n)
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("kernels_of_test", tmp_path / "kernels.py")
    assert spec is not None and spec.loader is not None
    (tmp_path / "kernels.py").write_text(KERNELS)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    yield found


def variant(kernel: Any, given: dict[str, Any]) -> Any:
    found = module("isa_kernels").unwrap(kernel)
    return module("isa_signature").variants(found, given, False)[0]


def test_annotations_say_types_alignment_and_constants(loaded: ModuleType) -> None:
    made = variant(loaded.scale, {"signature": {"mask_ptr": "*i1"}}).described()
    assert made["signature"] == {
        "x_ptr": "*bf16",
        "y_ptr": "*kfp32",
        "mask_ptr": "*i1",
        "n": "i32",
        "stride": "constexpr",
        "m": "i64",
        "by": "fp32",
        "flag": "i1",
        "BLOCK": "constexpr",
        "KIND": "constexpr",
    }
    assert made["constants"] == {"stride": "1", "BLOCK": "256", "KIND": "None"}


def test_the_json_has_the_last_word(loaded: ModuleType) -> None:
    given = {
        "signature": {"x_ptr": "*fp8e4nv", "mask_ptr": None, "n": "i64"},
        "constexprs": {"BLOCK": 64, "KIND": "tl.float32"},
        "aligned": ["m"],
        "num_warps": 8,
    }
    made = variant(loaded.scale, given)
    assert made.signature["x_ptr"] == "*fp8e4nv" and made.signature["mask_ptr"] == "constexpr"
    assert made.constants[(2,)] is None and made.constants[(8,)] == 64
    assert made.constants[(9,)].name == "fp32"
    assert made.options == {"num_warps": 8}
    assert "D" in made.known[(5,)] and "D" not in made.known.get((0,), "")


@pytest.mark.parametrize(
    ("given", "kind", "names"),
    [
        ({}, "no_signature", ["mask_ptr"]),
        ({"signature": {"mask_ptr": "*i1", "n": "f99"}}, "no_signature", ["n"]),
        ({"signature": {"no_such": "i32"}}, "bad_signature", ["no_such"]),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    loaded: ModuleType, given: dict[str, Any], kind: str, names: list[str]
) -> None:
    with pytest.raises(module("isa_kernels").Refusal) as raised:
        variant(loaded.scale, given)
    assert (raised.value.kind, raised.value.names) == (kind, names)


def guest(folder: Path, **asked: Any) -> dict[str, Any]:
    """What a guest in a process of its own answers: its plan, and what became of the first variant."""
    out = folder / "out"
    out.mkdir()
    request = {
        "kernel": None,
        "launch": None,
        "signature": None,
        "every_kernel": False,
        "every_config": False,
        "skip": [],
        "targets": [TARGET],
        "out": str(out),
        "file": str(folder / "kernels.py"),
        **asked,
    }
    (folder / "request.json").write_text(json.dumps(request))
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "PYTHONWARNINGS": "ignore",
    }
    subprocess.run(
        [sys.executable, str(FOLDER / "isa.py"), str(folder / "request.json")],
        env=environ,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    answers = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}
    return {**answers["plan"], "first": answers.get("0.gfx942")}


def test_a_launch_tells_types_alignment_values_of_one_and_constants(tmp_path: Path) -> None:
    start = "\nrun(torch.ones(1000, device='cuda').to('cuda'))\nrun(torch.ones(1000, dtype=torch.bfloat16).cuda())\n"
    write_files(tmp_path, {"kernels.py": ADD, "start.py": LAUNCH + start})
    found = guest(tmp_path, launch=str(tmp_path / "start.py"))
    first, second = found["variants"]
    assert first["signature"] == {
        "x_ptr": "*fp32",
        "y_ptr": "*fp32",
        "n": "i32",
        "one": "constexpr",
        "by": "fp32",
        "BLOCK": "constexpr",
    }
    assert second["signature"]["x_ptr"] == "*bf16"
    assert first["constants"] == {"one": "1", "BLOCK": "64"}
    assert first["aligned"] == ["x_ptr"]  # not what begins one element later, and 1000 is no multiple of 16
    assert first["options"]["num_warps"] == "2"
    assert found["first"]["num_warps"] == 2


def test_an_annotation_with_a_hint_is_none_of_tritons_business(tmp_path: Path) -> None:
    described = ADD.replace("x_ptr, y_ptr, n,", 'x_ptr: "*bf16:16", y_ptr: "*bf16", n: "i64:16",')
    write_files(tmp_path, {"kernels.py": described, "start.py": LAUNCH + "\nrun(torch.ones(64))\n"})
    launched = guest(tmp_path, launch=str(tmp_path / "start.py"))["variants"][0]["signature"]
    assert (launched["x_ptr"], launched["y_ptr"], launched["n"]) == ("*fp32", "*bf16", "i32")


def test_nothing_that_is_launched_runs(tmp_path: Path) -> None:
    start = "\nx = torch.ones(64, device='cuda')\nrun(x)\nassert bool((x == 1).all())\n"
    write_files(tmp_path, {"kernels.py": ADD, "start.py": LAUNCH + start})
    assert guest(tmp_path, launch=str(tmp_path / "start.py"))["variants"][0]["notes"] == []


@pytest.mark.parametrize(
    "start",
    [
        "\nif __name__ == '__main__':\n    run(torch.ones(64))\n",
        "\ndef build():\n    return run\n\ndef inputs(seed):\n    return (torch.ones(64),)\n",
        "\ndef build():\n    return run\n\ndef inputs(seed):\n    return {'x': torch.ones(64)}\n",
        "\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        run(x)\n\n"
        "def get_inputs():\n    return [torch.ones(64)]\n",
        "\nrun(torch.ones(64))\nraise SystemExit(0)\n",
    ],
)
def test_programs_entries_and_kernelbench_forms_are_run(tmp_path: Path, start: str) -> None:
    write_files(tmp_path, {"kernels.py": ADD, "start.py": LAUNCH + start})
    assert [each["kernel"] for each in guest(tmp_path, launch=str(tmp_path / "start.py"))["variants"]] == ["add"]


def test_a_script_that_fails_after_its_launch_is_noted(tmp_path: Path) -> None:
    write_files(tmp_path, {"kernels.py": ADD, "start.py": LAUNCH + "\nrun(torch.ones(64))\nraise ValueError('late')\n"})
    assert "ValueError: late" in guest(tmp_path, launch=str(tmp_path / "start.py"))["variants"][0]["notes"][0]


@pytest.mark.parametrize(
    ("start", "kind", "says"),
    [
        ("raise ValueError('early')", "launch_raised", "ValueError: early (line 10)"),
        ("pass", "no_launch", ""),
    ],
)
def test_a_script_without_launches_is_refused(tmp_path: Path, start: str, kind: str, says: str) -> None:
    write_files(tmp_path, {"kernels.py": ADD, "start.py": LAUNCH + "\n" + start + "\n"})
    error = guest(tmp_path, launch=str(tmp_path / "start.py"))["error"]
    assert (error["kind"], error["message"]) == (kind, says)


def test_each_configuration_of_an_autotuner_is_a_launch(tmp_path: Path) -> None:
    tuned = ADD.replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128}, "
        "num_warps=8)], key=['n'])\n@triton.jit",
    )
    start = LAUNCH.replace(", BLOCK=64, num_warps=2", "") + "\nrun(torch.ones(64))\n"
    write_files(tmp_path, {"kernels.py": tuned, "start.py": start})
    found = guest(tmp_path, launch=str(tmp_path / "start.py"))["variants"]
    assert [each["constants"]["BLOCK"] for each in found] == ["64", "128"]
