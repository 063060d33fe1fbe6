"""The commands for a closer look call what was profiled, on the device and in its mode."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tools.judging.script import Case
from tools.profiler import closer_look
from tools.profiler.result import KernelRow, Profile
from tools.profiler.rocprof.counters import passes

BENCH = """
import torch
called = []

class Model(torch.nn.Module):
    def forward(self, x, scale):
        called.append((self.training, torch.is_grad_enabled(), x.shape[0], scale))

def get_inputs():
    return [torch.ones(3), 2.0]
"""
DECLARED = """
import torch
called = []

class Decoder(torch.nn.Module):
    def prefill(self, tokens):
        called.append((self.training, torch.is_grad_enabled(), "prefill", tokens.shape[0]))

def build():
    return Decoder()

def phases():
    return {"prefill": {"method": "prefill", "inputs": lambda seed, tokens: torch.ones(tokens)}}
"""
PLAIN = """
called = []

def build():
    return lambda **given: called.append(given)

def inputs(seed, rows=1):
    return {"seed": seed, "rows": rows}
"""


def workload(form: str, case: Case, **more: Any) -> Any:
    given = dict(device="cuda", form=form, environment={}, cases=(case,), mode="inference", is_module=True)
    return SimpleNamespace(**{**given, **more})


def told(found: Any, kernel: str = "k") -> list[list[str]]:
    row = KernelRow(name=kernel, category="gemm", calls=1, time_us=1, share=1, mean_us=1)
    times = {"calls": 1, "call_us": 1, "busy_us": 1, "span_us": 1, "idle_share": 0}
    profile = Profile.model_validate({"entry": "here/bench.py", "device": "NVIDIA H100", "kernels": [row], **times})
    return [shlex.split(line.partition(": ")[2]) for line in closer_look.commands_for(profile, found)]


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have gone to the GPU."""
    found: list[Any] = []

    def move(self: Any) -> Any:
        found.append(self)
        return self

    monkeypatch.setattr(torch.Tensor, "cuda", move)
    monkeypatch.setattr(torch.nn.Module, "cuda", move)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return found


@pytest.mark.parametrize(
    ("source", "found", "called", "gone"),
    [
        (BENCH, workload("kernelbench", Case("", {})), (False, False, 3, 2.0), ["Model", "Tensor"]),
        (BENCH, workload("kernelbench", Case("", {}), mode="training"), (True, True, 3, 2.0), ["Model", "Tensor"]),
        # a phase is called by its method on its own inputs, a function on inputs of the first shape
        (DECLARED, workload("declared", Case("prefill", {"tokens": 7})), (False, False, "prefill", 7), []),
        (PLAIN, workload("declared", Case("", {"rows": 4}), is_module=False), {"seed": 0, "rows": 4}, []),
    ],
)
def test_the_printed_program_calls_what_was_profiled_in_its_mode(
    source: str, found: Any, called: Any, gone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Any
) -> None:
    (tmp_path / "bench.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    (program,) = {argv[-1] for argv in told(found)}
    names: dict[str, Any] = {}
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        exec(program, names)
    assert list(names["n"]["called"]) == [called] * 20
    assert [type(each).__name__ for each in moved] == gone


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void gemmSN_TN_kernel<float, 128, 16>(cublasGemmParams)", "gemmSN_TN_kernel"),
        ("void at::native::(anonymous namespace)::norm<float, 4>(int, at::Tensor)", "norm"),
        ("nvjet_tst_128x64", "nvjet_tst_128x64"),
    ],
)
def test_a_kernel_is_asked_for_by_its_bare_name(kernel: str, name: str) -> None:
    argv = told(workload("observed", Case("", {})), kernel)[1]
    assert argv[argv.index("--kernel-name") + 1] == name and argv[-2:] == ["python", "bench.py"]


PROGRAM = ("python", "bench.py", "a b")


@pytest.mark.parametrize(
    "kernel", ["", "f<int>", "$(reboot)", "'; reboot; '", "`x`\n", "ns::(anonymous namespace)::k<1>(int)"]
)
def test_commands_of_amds_tools_can_be_pasted_and_take_a_name_for_no_pattern(kernel: str) -> None:
    lines = closer_look.deeper(PROGRAM, "gfx942:xnack-", kernel)
    for line in lines:
        purpose, _, command = line.partition(": ")
        assert purpose and "reboot" not in [word.strip() for word in shlex.split(command)]
        assert "avail" in command or "analyze" in command or shlex.split(command)[-4:] == ["--", *PROGRAM]
    counted = [shlex.split(line.partition(": ")[2]) for line in lines if "--pmc" in line]
    assert len(counted) == len(passes("gfx942"))
    assert any("--pc-sampling-method" in line for line in lines) and any("rocprof-sys-run" in line for line in lines)
    if kernel.startswith("ns::"):
        assert counted[0][counted[0].index("--kernel-include-regex") + 1] == r"ns::\(anonymous\ namespace\)::k"
    assert not any("--pmc" in line or "--pc-sampling" in line for line in closer_look.deeper(PROGRAM, "gfx1100"))


def test_on_a_cpu_there_is_nothing_to_run() -> None:
    assert told(workload("declared", Case("", {}), device="cpu")) == []
