"""`agent` in which each candidate that is made gets a random title: nothing may go by titles. Run as a script."""

from __future__ import annotations

import secrets
import sys
from typing import Any

from agent import cli
from tools.candidate import Candidate


def randomise() -> None:
    made = Candidate.__init__

    def init(self: Candidate, **given: Any) -> None:
        made(self, **{**given, "title": secrets.token_hex(8)})

    Candidate.__init__ = init  # type: ignore[method-assign]


if __name__ == "__main__":
    randomise()
    sys.exit(cli.main())
