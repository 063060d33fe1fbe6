"""A referee on a target of a few files, whose workers are forks of one warm process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from tests.files import write_files
from tests.forking import ForkingSandbox, unwatched_packages
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee


@contextmanager
def opened(folder: Path, files: Mapping[str, str]) -> Iterator[Referee]:
    """The entry is `bench.py`. Installed packages are not watched: listing them takes longer than judging."""
    pristine = write_files(folder / "pristine", files)
    (folder / "scratch").mkdir()
    sandbox, scratch = ForkingSandbox(), folder / "scratch"
    with unwatched_packages():
        referee = open_referee(pristine, "bench.py", python=sys.executable, sandbox=sandbox, scratch=scratch)
    with closing(referee):
        yield referee
