"""What a container is given does not depend on how its engine was set up."""

from __future__ import annotations

from pathlib import Path

from sandbox.contract import Command
from sandbox.docker import container
from sandbox.docker.container import Outside


def test_neither_process_1_nor_the_control_groups_are_left_to_the_engine() -> None:
    outside = Outside(1000, 1000, Path("/run/channel"), ("/init.py",), ())
    options = container.host_options(Command(("/bin/true",), Path("/"), "worker"), outside)
    assert options["init"] is False and options["cgroupns"] == "private"
