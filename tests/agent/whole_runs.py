"""Whole runs of the command line in this process, with a synthetic clock, and a target for them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from agent import cli
from agent.reporting import report
from agent.reporting.report import Report
from tests.agent.synthetic_clock import synthetic
from tests.forking import ADDRESS, warm_parent

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


class Terminal(io.StringIO):
    """A stream with a person at it."""

    def isatty(self) -> bool:
        return True


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


def command(name: str, runs: Path, run_id: str, *options: str, **environment: str) -> Ran:
    common = ("--runs-dir", str(runs), "--run-id", run_id, "--sandbox", "local", "--python", sys.executable)
    with mock.patch.dict(os.environ, environment), synthetic():
        return called(runs / run_id, name, *common, *options)


def called(run_dir: Path, *argv: str) -> Ran:
    """In this process: what a process of its own adds is shown where runs are killed."""
    output, message = io.StringIO(), io.StringIO()
    with handlers_kept(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(message):
        status = cli.main(argv)
    return Ran(status, message.getvalue(), run_dir, output.getvalue())


def process(*arguments: str, forks: bool = True, **environment: str) -> dict[str, Any]:
    """What `subprocess` is to start for this command in a process of its own. Without `forks` its sandbox is real."""
    if forks:
        warm_parent()
    inherited = {name: value for name, value in os.environ.items() if forks or name != ADDRESS}
    command = [sys.executable, "-m", "tests.agent.synthetic_clock", *arguments]
    return {"args": command, "cwd": ROOT, "env": {**inherited, **environment}}


def run_options(target: Path, runs: Path, run_id: str = "one", sandbox: str = "local") -> tuple[str, ...]:
    where = ("--target", str(target), "--entry", "bench.py", "--runs-dir", str(runs), "--run-id", run_id)
    return (*where, "--sandbox", sandbox, "--python", sys.executable)


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """A command takes over some signals for good."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def repository(folder: Path) -> Path:
    """Make a git repository of a folder, with all its files in one commit."""
    who = ("-c", "user.name=User", "-c", "user.email=user@example.org")
    for command in (("init", "-b", "main"), ("add", "--all"), ("commit", "--message=first")):
        subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)
    return folder
