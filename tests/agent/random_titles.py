"""`agent` with a title that is another random string whenever it is read: nothing may go by it. Run as a script."""

from __future__ import annotations

import secrets
import sys

from agent import cli
from tools.candidate import Candidate


def randomise() -> None:
    Candidate.title = property(lambda candidate: secrets.token_hex(8))  # type: ignore[assignment]


if __name__ == "__main__":
    randomise()
    sys.exit(cli.main())
