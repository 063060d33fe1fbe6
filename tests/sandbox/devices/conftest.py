"""Code that runs as another user of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

OTHER = 1_900_000_123


@pytest.fixture
def as_another_user() -> Callable[[Callable[[], str]], str]:
    """What an act says in a process of its own; of another user where this is root, so that file modes count."""

    def run(act: Callable[[], str]) -> str:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(OTHER, OTHER, OTHER)
                    os.setresuid(OTHER, OTHER, OTHER)
                os.write(writing, act().encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as file:
            said = file.read()
        os.waitpid(child, 0)
        return said

    return run
