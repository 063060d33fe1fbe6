"""Bad targets and bad entries: one clear message with what to do, an exit status of its own, nothing left behind.

Each is given to the real command line, with the real sandbox.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.left_running import left_running
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


class Told:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.message = done.returncode, done.stderr.split("agent: ", 1)[-1]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Told]:
    def agent(
        entry_text: str | None = GOOD, *options: str, target: Path | None = None, entry: str = "bench.py"
    ) -> Told:
        folder = target or tmp_path / "target"
        if target is None:
            folder.mkdir(exist_ok=True)
        if entry_text is not None:
            (folder / "bench.py").write_text(entry_text)
        before = hash_tree(folder) if folder.is_dir() else ""
        what = ("--target", str(folder), "--entry", entry, "--runs-dir", str(tmp_path / "runs"))
        how = ("--sandbox", "local", "--python", sys.executable)
        command = [sys.executable, "-m", "agent", "run", *what, *how, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
        assert "Traceback" not in done.stderr
        assert not before or hash_tree(folder) == before
        assert not list((tmp_path / "runs").glob("*/work")), "a run that ended leaves no scratch folder"
        assert not left_running(tmp_path), "a run that ended leaves no process"
        return Told(done)

    return agent


def test_no_such_target(run: Callable[..., Told], tmp_path: Path) -> None:
    told = run(None, target=tmp_path / "nowhere")
    assert (told.status, "There is no target" in told.message) == (10, True)


def test_no_such_entry(run: Callable[..., Told]) -> None:
    told = run(GOOD, entry="benchmark.py")
    assert told.status == 11
    assert "There is no entry benchmark.py" in told.message and "bench.py" in told.message


BAD_ENTRIES = {
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
    "zeros": (FORWARD.format(body="return x * 0"), 65, "zeros would pass"),
    "an output that any order of the batch fits": (
        FORWARD.format(body="return self.linear(x).sum(0, keepdim=True).expand(4, 8).contiguous()"),
        65,
        "a shuffled batch",
    ),
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
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_a_bad_entry_is_told_apart(run: Callable[..., Told], name: str) -> None:
    text, status, says = BAD_ENTRIES[name]
    told = run(text)
    assert says in told.message
    assert told.status == status
    assert len(told.message.splitlines()) >= 2, "a message and what to do"


def test_one_that_hangs_is_ended_at_the_time_limit(run: Callable[..., Told]) -> None:
    told = run("import time\ntime.sleep(3600)", "--time-limit", "4")
    assert told.status == 47
    assert "--time-limit" in told.message


def test_one_that_prints_a_gigabyte_is_ended(run: Callable[..., Told]) -> None:
    told = run("import sys\nwhile True:\n    sys.stdout.write('x' * 1000000)")
    assert told.status == 48
    assert max(map(len, told.message.splitlines())) < 300, "of what it printed a little is enough"


def test_one_that_allocates_until_it_dies_is_ended_before_the_machine_is(run: Callable[..., Told]) -> None:
    told = run("keep = []\nwhile True:\n    keep.append(bytearray(1 << 24))", "--memory-gib", "0.7")
    assert told.status == 61
    assert "--memory-gib" in told.message


def test_an_error_says_the_last_that_was_printed(run: Callable[..., Told]) -> None:
    told = run("print('weights are being fetched', flush=True)\nimport os\nos._exit(3)")
    assert told.status == 62
    assert "weights are being fetched" in told.message and "exit status 3" in told.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_named(run: Callable[..., Told], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(tmp_path / "runs")], check=True)
    try:
        told = run(GOOD)
        assert told.status == 32
        assert "disk is full" in told.message
    finally:
        subprocess.run(["umount", str(tmp_path / "runs")], check=True)


def test_an_interpreter_without_torch(run: Callable[..., Told], tmp_path: Path) -> None:
    venv.create(tmp_path / "bare")
    python = tmp_path / "bare" / "bin" / "python"
    told = run(GOOD, "--python", str(python))
    assert told.status == 80
    assert f"bench.py cannot be run: {python} has no PyTorch" in told.message and "--image" in told.message
    assert "Traceback" not in told.message
