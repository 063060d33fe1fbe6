"""Bad targets and bad entries: one clear message with what to do, an exit status of its own, nothing left behind.

Each is given to the real command line, with the real sandbox.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.left_running import left_running
from tests.files import write_files
from tools.integrity import hash_tree

GOOD = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8).eval()

def inputs(seed):
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),)
"""
FORWARD = """
import os, sys, torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        {body}

def build():
    return Model().eval()

def inputs(seed):
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),)
"""


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Exit status and message of a run on this entry."""

    def agent(
        text: str | None = GOOD, *options: str, target: Path = tmp_path / "target", entry: str = "bench.py"
    ) -> tuple[int, str]:
        if text is not None:
            write_files(target, {"bench.py": text})
        before = hash_tree(target) if target.is_dir() else ""
        what = ("--target", str(target), "--entry", entry, "--runs-dir", str(tmp_path / "runs"))
        how = ("--sandbox", "local", "--python", sys.executable)
        command = [sys.executable, "-m", "agent", "run", *what, *how, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
        assert "Traceback" not in done.stderr
        assert not before or hash_tree(target) == before
        assert not list((tmp_path / "runs").glob("*/work")), "a run that ended leaves no scratch folder"
        assert not left_running(tmp_path), "a run that ended leaves no process"
        return done.returncode, done.stderr.split("agent: ", 1)[-1]

    return agent


def test_a_target_and_an_entry_that_are_not_there_are_named(told: Any, tmp_path: Path) -> None:
    status, said = told(None, target=tmp_path / "nowhere")
    assert status == 10 and "There is no target" in said
    status, said = told(entry="benchmark.py")
    assert status == 11 and "There is no entry benchmark.py" in said and "bench.py" in said


BAD_ENTRIES: dict[str, tuple[str, int, str]] = {
    "an entry of no known form": ("print('hello')", 41, "call a torch.nn.Module in the script"),
    "one that raises": ("import torch\nraise RuntimeError('no luck')", 43, "no luck (at bench.py:2)"),
    "a syntax error": ("def build(:", 43, "SyntaxError"),
    "one that calls sys.exit": ("import sys\nsys.exit(0)", 49, "calls sys.exit"),
    "a call that ends the process": (FORWARD.format(body="os._exit(0)"), 62, "crash or os._exit"),
    "a call that crashes": (FORWARD.format(body="import ctypes; ctypes.string_at(8)"), 62, "signal 11"),
    "a build that raises": (GOOD.replace("torch.manual_seed(0)", "open('weights.bin')"), 44, "weights.bin"),
    "inputs that raise": (GOOD.replace("return (torch.randn(4", "return (torch.rand_n(4"), 45, "rand_n"),
    "a call that raises": (FORWARD.format(body="return self.linear(x.T)"), 46, "mat1 and mat2"),
    "non-tensors": (FORWARD.format(body="return 'done'"), 63, "no tensor in it"),
    "one that differs between two runs of itself": (FORWARD.format(body="return torch.rand(4, 8)"), 64, "differs"),
    "constant output": (FORWARD.format(body="return torch.ones(4, 8)"), 65, "another seed"),
    "one that needs several ranks": (
        GOOD.replace("torch.manual_seed(0)", "torch.distributed.init_process_group('gloo')"),
        73,
        "one process on one device",
    ),
    "weights from the internet": (
        "import urllib.request\n"
        + GOOD.replace("torch.manual_seed(0)", "urllib.request.urlopen('http://weights.invalid/model', timeout=9)"),
        81,
        "--mount",
    ),
    "a model of the hub that is not there": (
        "import transformers\n"
        + GOOD.replace("torch.manual_seed(0)", "transformers.AutoModel.from_pretrained('nobody/nothing')"),
        81,
        "HF_HUB_CACHE",
    ),
    "inputs of no known kind": (GOOD.replace("return (torch.randn", "return str(torch.randn"), 42, "tuple or a dict"),
    "an unknown mode": (GOOD + "\nmode = 'eval'", 42, "'inference' or 'training'"),
    "one that prints a gigabyte": ("import sys\nwhile True:\n    sys.stdout.write('x' * 1000000)", 48, ""),
    "one that prints before it ends": (
        "print('weights are being fetched', flush=True)\nimport os\nos._exit(3)",
        62,
        "exit status 3\nThe last it printed:\nweights are being fetched",
    ),
}
# each of these is ended or told apart in another way than the rest
ENDED = {
    "one that hangs": ("import time\ntime.sleep(3600)", 47, "--time-limit", "--time-limit", "4"),
    "one that allocates until it dies": (
        "keep = []\nwhile True:\n    keep.append(bytearray(1 << 24))",
        61,
        "--memory-gib",
        "--memory-gib",
        "0.7",
    ),
}


@pytest.mark.parametrize(
    ("text", "status", "says", "options"),
    [
        *(pytest.param(*each, (), id=name, marks=pytest.mark.slow) for name, each in BAD_ENTRIES.items()),
        *(pytest.param(*each[:3], each[3:], id=name) for name, each in ENDED.items()),
    ],
)
def test_a_bad_entry_is_told_apart(told: Any, text: str, status: int, says: str, options: tuple[str, ...]) -> None:
    ended, said = told(text, *options)
    assert (ended, says in said) == (status, True), said
    assert len(said.splitlines()) >= 2, "a message and what to do"
    assert max(map(len, said.splitlines())) < 300, "of what it printed a little is enough"


def test_an_interpreter_without_torch(told: Any, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare")
    python = tmp_path / "bare" / "bin" / "python"
    status, said = told(GOOD, "--python", str(python))
    assert status == 80
    assert f"bench.py cannot be run: {python} has no PyTorch" in said and "--image" in said
