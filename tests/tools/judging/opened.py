"""A referee on a target of a few files, whose workers are forks of one warm process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.files import write_files
from tests.forking import ForkingSandbox, unwatched_packages
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee

LINEAR = """
import torch

class Model(torch.nn.Linear):
    def forward(self, x):
        {body}

def build():
    torch.manual_seed(0)
    return Model(8, 8).eval()

def inputs(seed, rows=4):
    return (torch.randn(rows, 8, generator=torch.Generator().manual_seed(seed)),)
"""


def linear(returns: str = "super().forward(x)", more: str = "", first: str = "pass") -> str:
    """An entry whose model is a layer that returns this, after the statement that comes `first`."""
    return LINEAR.format(body=f"{first}\n        return {returns}") + more


@contextmanager
def opened(folder: Path, files: Mapping[str, str], **settings: Any) -> Iterator[Referee]:
    """The entry is `bench.py`. Installed packages are not watched: listing them takes longer than judging."""
    pristine = write_files(folder / "pristine", files)
    (folder / "scratch").mkdir()
    sandbox, scratch = ForkingSandbox(), folder / "scratch"
    with unwatched_packages():
        referee = open_referee(
            pristine, "bench.py", python=sys.executable, sandbox=sandbox, scratch=scratch, **settings
        )
    with closing(referee):
        yield referee
