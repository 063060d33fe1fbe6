"""A referee on a target of a few files, in the sandbox that any machine has."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from sandbox.local.provider import LocalSandbox
from tests.files import write_files
from tools.judging.open_referee import open_referee
from tools.judging.referee import Referee


@contextmanager
def opened(folder: Path, files: Mapping[str, str], imports: Sequence[str] = ()) -> Iterator[Referee]:
    """The entry is `bench.py`; `imports` are modules that programs in the sandbox must find."""
    pristine = write_files(folder / "pristine", files)
    (folder / "scratch").mkdir()
    sandbox = LocalSandbox(sys.executable, folder / "sandbox", imports=tuple(imports), owned=(folder,))
    referee = open_referee(pristine, "bench.py", python=sys.executable, sandbox=sandbox, scratch=folder / "scratch")
    with closing(referee):
        yield referee
