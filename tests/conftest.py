"""What every test gets: the marker `gpu` means something, and nobody's own settings have a say."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.files import folder_open_to_all

if TYPE_CHECKING:
    from tests.local_image import Images

LOOK = "import torch; print(torch.cuda.is_available())"


def pytest_configure() -> None:
    """What nohup or a script's `&` has us ignore, everything we start would ignore, too; a handler is not inherited."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need an accelerator, by name, where torch sees none; asked only when there are any."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    # In a process of its own: the tests of the host side must not have torch loaded.
    seen = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True)
    if seen.stdout.strip() == "True":
        return
    reason = "torch sees no accelerator" if seen.returncode == 0 else f"torch: {seen.stderr.strip().splitlines()[-1]}"
    for item in marked:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own is closed."""
    with folder_open_to_all() as folder:
        yield folder


@pytest.fixture(scope="session")
def local_images() -> Iterator[Images]:
    """Container images made of this machine's own files, for the whole session: engines remember what they built."""
    from tests.local_image import Images, engine_here

    with contextlib.closing(Images(engine_here())) as images:
        yield images
