"""Candidates that get a random title each when they are made: nothing may go by titles."""

from __future__ import annotations

import contextlib
import secrets
from typing import Any
from unittest import mock

from tools.candidate import Candidate


def random_titles() -> contextlib.AbstractContextManager[object]:
    made = Candidate.__init__

    def init(self: Candidate, **given: Any) -> None:
        made(self, **{**given, "title": secrets.token_hex(8)})

    return mock.patch.object(Candidate, "__init__", init)
