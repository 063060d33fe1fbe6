"""What a container is given does not hang on how its engine was set up."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.contract import Command
from sandbox.docker import container
from sandbox.docker.container import Outside
from sandbox.docker.engine import Engine

COMMAND = Command(("/bin/true",), Path("/"), "worker")


def options(*, cgroup_namespace: bool = True) -> dict[str, object]:
    outside = Outside(1000, 1000, Path("/run/channel"), ("/init.py",), (), cgroup_namespace=cgroup_namespace)
    return container.host_options(COMMAND, outside)


def test_neither_process_1_nor_the_control_groups_are_left_to_the_engine() -> None:
    assert options()["init"] is False
    assert options()["cgroupns"] == "private"


def test_an_engine_that_knows_no_namespace_of_control_groups_is_asked_for_none() -> None:
    assert "cgroupns" not in options(cgroup_namespace=False)


@pytest.mark.parametrize(("version", "has"), [("1.40", False), ("1.41", True), ("1.100", True)])
def test_the_version_of_its_interface_says_which_it_is(version: str, has: bool) -> None:
    made = Engine.__new__(Engine)
    made._api = type("Api", (), {"api_version": version})()
    assert made.has_cgroup_namespaces == has
