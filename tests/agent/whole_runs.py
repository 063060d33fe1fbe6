"""Whole runs of the command line in a process of their own, with a synthetic clock, and a target for them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from agent.reporting import report
from agent.reporting.report import Report

ROOT = Path(__file__).parents[2]
TWO_BRANCHES = """
import torch
from torch import nn
from tail import Tail

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size, size)
        self.up = nn.Linear(size, size)
        self.tail = Tail(size)

    def forward(self, x):
        return self.tail(torch.sigmoid(self.gate(x)) * self.up(x))

def get_inputs():
    return [torch.randn(64, 128)]

def get_init_inputs():
    return [128]
"""
COPIES = """
from torch import nn

class Tail(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x):
        before = x.clone()
        return self.layer(x) + before
"""


@dataclass
class Ran:
    status: int
    message: str
    run_dir: Path
    output: str = ""

    @property
    def report(self) -> Report:
        return report.read(self.run_dir)


def agent(target: Path, runs: Path, *options: str, **environment: str) -> Ran:
    """`agent run`, as run `one`."""
    return command("run", runs, "one", "--target", str(target), "--entry", "bench.py", *options, **environment)


SCRIPT = [sys.executable, "-m", "tests.agent.synthetic_clock"]


def argv(name: str, runs: Path, run_id: str) -> list[str]:
    where = ["--runs-dir", str(runs), "--run-id", run_id]
    return [*SCRIPT, name, *where, "--sandbox", "local", "--python", sys.executable]


def argv_of_run(target: Path, runs: Path, steps: str) -> list[str]:
    """Of run `one`."""
    return [*argv("run", runs, "one"), "--target", str(target), "--entry", "bench.py", "--steps", steps]


def command(name: str, runs: Path, run_id: str, *options: str, **environment: str) -> Ran:
    given = [*argv(name, runs, run_id), *options]
    done = subprocess.run(
        given, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    return Ran(done.returncode, done.stderr, runs / run_id, done.stdout)


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=User", "-c", "user.email=user@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)
