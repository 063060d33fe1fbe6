"""What every test gets: the marker `gpu` means something, and nobody's own settings have a say."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import tiers
from tests.files import folder_open_to_all

if TYPE_CHECKING:
    from tests.local_image import Images

LOOK = "import torch; print(torch.cuda.is_available())"
ALL_TESTS = pytest.StashKey[list[tiers.Tiered]]()  # that were collected, those of other tiers included


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-durations", action="store_true", help=f"keep how long tests take in {tiers.DURATIONS.name}"
    )


def pytest_configure(config: pytest.Config) -> None:
    """What nohup or a script's `&` has us ignore, everything we start would ignore, too; a handler is not inherited."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    if config.getoption("record_durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


class Recorder:
    """Adds up what each test takes, with the fixtures that were made for it, and keeps it in the end."""

    def __init__(self) -> None:
        self.seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        tiers.record(self.seconds)


@pytest.hookimpl(tryfirst=True)  # before tests of other tiers are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests that need an accelerator, by name, where torch sees none; asked only when there are any."""
    config.stash[ALL_TESTS] = [tiers.Tiered.of(item) for item in items]
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


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    """What a test has changed of torch for the whole process is put back, and it fails."""
    before = _torch_settings()
    yield
    now = _torch_settings()
    changed = [name for name in before if now[name][0] != before[name][0]]
    for name in changed:
        value, put_back = before[name]
        put_back(value)
    assert not changed, f"it leaves {', '.join(changed)} of torch changed"


def _torch_settings() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """The value of each, and how it is set; nothing where torch is not loaded, which tests of the host need not."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    cuda = torch.backends.cuda
    backends = ("flash", "mem_efficient", "math", "cudnn")
    return {
        "the grad mode": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "the default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "the number of threads": (torch.get_num_threads(), torch.set_num_threads),
        "the choice of algorithms": (
            torch.are_deterministic_algorithms_enabled(),
            torch.use_deterministic_algorithms,
        ),
        **{
            f"{each} attention": (getattr(cuda, f"{each}_sdp_enabled")(), getattr(cuda, f"enable_{each}_sdp"))
            for each in backends
        },
    }


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own is closed."""
    with folder_open_to_all() as folder:
        yield folder


@pytest.fixture
def forks() -> Iterator[None]:
    """The sandbox `local` forks its commands from a warm process."""
    from tests import forking

    with forking.chosen():
        yield


@pytest.fixture(scope="session")
def local_images() -> Iterator[Images]:
    """Container images made of this machine's own files, for the whole session: engines remember what they built."""
    from tests.local_image import Images, engine_here

    with contextlib.closing(Images(engine_here())) as images:
        yield images


@pytest.fixture
def all_tests(pytestconfig: pytest.Config) -> list[tiers.Tiered]:
    """Every test that was collected, of whatever tier."""
    return pytestconfig.stash[ALL_TESTS]
