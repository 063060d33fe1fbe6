"""Where results are stored: JSON with every raw number, and a page for a person beside it.

Refuses to name the places of one machine: paths below the repository, the home and the folder for temporary files are
written as `.`, `~` and `$TMPDIR`, so that a result can be published.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel

from agent.records.atomic_file import write_atomically

ROOT = Path(__file__).resolve().parents[1]


class ResultFile:
    """`<kind>-<date>.json` and `.md` in the folder of results, which is made when it is not there.

    Of two that began in one second, the second that is written gets a number.
    """

    def __init__(self, folder: Path, kind: str, date: datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.stem = folder / f"{kind}-{date:%Y%m%d-%H%M%S}"
        self._is_ours = False

    def write(self, result: BaseModel, page: str) -> None:
        if not self._is_ours:
            self._take_a_name()
        write_atomically(Path(f"{self.stem}.json"), portable(result.model_dump_json(indent=1)) + "\n")
        write_atomically(Path(f"{self.stem}.md"), portable(page))

    def _take_a_name(self) -> None:
        first = self.stem
        for number in itertools.count(2):
            with contextlib.suppress(FileExistsError):
                Path(f"{self.stem}.json").touch(exist_ok=False)
                break
            self.stem = first.with_name(f"{first.name}-{number}")
        self._is_ours = True

    def __str__(self) -> str:
        return f"{self.stem}.json"


def portable(text: str) -> str:
    for folder, name in ((ROOT, "."), (Path.home(), "~"), (Path(tempfile.gettempdir()), "$TMPDIR")):
        if len(folder.parts) > 1:  # the home of a user without a name may be /
            text = re.sub(rf"{re.escape(str(folder))}(?!\.?[\w-])", name, text)
    return text
