"""In the target's interpreter: how a kernel is described, and how a launch is caught before it happens."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.files import write_files
from tests.guest import FOLDER, module
from tests.observed import cases

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
def scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel with annotations."""
    write_files(tmp_path, {"kernels_of_test.py": KERNELS})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kernels_of_test", raising=False)
    return importlib.import_module("kernels_of_test").scale


def variant(kernel: Any, given: dict[str, Any]) -> Any:
    found = module("isa_kernels").unwrap(kernel)
    return module("isa_signature").variants(found, given, False)[0]


def test_annotations_say_types_alignment_and_constants_and_the_json_has_the_last_word(scale: Any) -> None:
    described = variant(scale, {"signature": {"mask_ptr": "*i1"}}).described()
    types = "*bf16 *kfp32 *i1 i32 constexpr i64 fp32 i1 constexpr constexpr"
    assert list(described["signature"].values()) == types.split()
    assert described["constants"] == {"stride": "1", "BLOCK": "256", "KIND": "None"}
    given = {
        "signature": {"x_ptr": "*fp8e4nv", "mask_ptr": None, "n": "i64"},
        "constexprs": {"BLOCK": 64, "KIND": "tl.float32"},
        "aligned": ["m"],
        "num_warps": 8,
    }
    made = variant(scale, given)
    assert made.signature["x_ptr"] == "*fp8e4nv" and made.signature["mask_ptr"] == "constexpr"
    assert (made.constants[(2,)], made.constants[(8,)], made.constants[(9,)].name) == (None, 64, "fp32")
    assert made.options == {"num_warps": 8}
    assert "D" in made.known[(5,)] and "D" not in made.known.get((0,), "")


@pytest.mark.parametrize(
    ("given", "names"), [({}, ["mask_ptr"]), ({"signature": {"mask_ptr": "*i1", "n": "f99"}}, ["n"])]
)
def test_what_is_not_known_is_refused_by_name(scale: Any, given: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(module("isa_kernels").Refusal) as raised:
        variant(scale, given)
    assert (raised.value.kind, raised.value.names) == ("no_signature", names)


def guest(folder: Path, start: str, kernels: str = ADD, launch: str = LAUNCH) -> dict[str, Any]:
    """What a guest in a process of its own answers for a script: its plan, and what became of the first variant."""
    write_files(folder, {"kernels.py": kernels, "start.py": f"{launch}\n{start}\n"})
    out = folder / "out"
    out.mkdir()
    asked = dict.fromkeys(("kernel", "signature", "every_kernel", "every_config"))
    where = {"file": str(folder / "kernels.py"), "launch": str(folder / "start.py"), "out": str(out)}
    (folder / "request.json").write_text(json.dumps({**asked, **where, "skip": [], "targets": [TARGET]}))
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, str(FOLDER / "isa.py"), str(folder / "request.json")]
    subprocess.run(command, env={**environ, "PYTHONWARNINGS": "ignore"}, cwd=folder, check=True, capture_output=True)
    answers = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}
    return {**answers["plan"], "first": answers.get("0.gfx942")}


def test_a_launch_tells_types_alignment_values_of_one_and_constants(tmp_path: Path) -> None:
    start = "run(torch.ones(1000, device='cuda').to('cuda'))\nrun(torch.ones(1000, dtype=torch.bfloat16).cuda())"
    found = guest(tmp_path, start)
    first, second = found["variants"]
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "one": "constexpr", "by": "fp32", "BLOCK": "constexpr"}
    assert first["signature"] == signature
    assert second["signature"]["x_ptr"] == "*bf16"
    assert first["constants"] == {"one": "1", "BLOCK": "64"}
    assert first["aligned"] == ["x_ptr"]  # not what begins one element later, and 1000 is no multiple of 16
    assert first["options"]["num_warps"] == "2" and found["first"]["num_warps"] == 2


def test_an_annotation_with_a_hint_is_none_of_tritons_business(tmp_path: Path) -> None:
    described = ADD.replace("x_ptr, y_ptr, n,", 'x_ptr: "*bf16:16", y_ptr: "*bf16", n: "i64:16",')
    launched = guest(tmp_path, "run(torch.ones(64))", described)["variants"][0]["signature"]
    assert (launched["x_ptr"], launched["y_ptr"], launched["n"]) == ("*fp32", "*bf16", "i32")


PROGRAMS = """
- if __name__ == '__main__': run(torch.ones(64))
- def build(): return run
  def inputs(seed): return (torch.ones(64),)
- def build(): return run
  def inputs(seed): return {'x': torch.ones(64)}
- class Model(torch.nn.Module):
      def forward(self, x): run(x)
  def get_inputs(): return [torch.ones(64)]
- run(torch.ones(64)); raise SystemExit(0)
- x = torch.ones(64, device='cuda'); run(x); assert bool((x == 1).all())
"""  # what is launched does not run


@pytest.mark.parametrize("start", cases(PROGRAMS))
def test_programs_entries_and_kernelbench_forms_are_run(tmp_path: Path, start: str) -> None:
    assert [(each["kernel"], each["notes"]) for each in guest(tmp_path, start)["variants"]] == [("add", [])]


def test_a_script_without_launches_is_refused_and_one_that_fails_later_is_noted(tmp_path: Path) -> None:
    early = guest(tmp_path / "early", "raise ValueError('early')")["error"]
    assert (early["kind"], early["message"]) == ("launch_raised", "ValueError: early (line 10)")
    assert guest(tmp_path / "none", "pass")["error"]["kind"] == "no_launch"
    late = guest(tmp_path / "late", "run(torch.ones(64))\nraise ValueError('late')")["variants"][0]
    assert late["notes"] == ["the script failed later on: ValueError: late"]


def test_each_configuration_of_an_autotuner_is_a_launch(tmp_path: Path) -> None:
    configs = "[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128}, num_warps=8)]"
    tuned = ADD.replace("@triton.jit", f"@triton.autotune({configs}, key=['n'])\n@triton.jit")
    found = guest(tmp_path, "run(torch.ones(64))", tuned, LAUNCH.replace(", BLOCK=64, num_warps=2", ""))["variants"]
    assert [each["constants"]["BLOCK"] for each in found] == ["64", "128"]
