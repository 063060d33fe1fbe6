"""What a command is given for one GPU, and that nothing else chooses another one for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.devices import access
from sandbox.devices.record import Gpu
from tests.sandbox.devices import machines

HOST = {"PATH": "/usr/bin", "ROCR_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "5"}


def gpu(vendor: str, index: int = 3) -> Gpu:
    nodes = ("/dev/kfd", "/dev/dri/renderD131") if vendor == "amd" else ("/dev/nvidia3", "/dev/nvidiactl")
    return machines.gpu(vendor=vendor, index=index, devices=tuple(map(Path, nodes)), groups=(44, 109))


@pytest.mark.guard("one GPU")
def test_a_container_gets_the_nodes_of_one_gpu_its_groups_and_its_number_inside() -> None:
    given = access.by_nodes(gpu("amd"))
    assert given.nodes == (Path("/dev/kfd"), Path("/dev/dri/renderD131"))
    assert given.groups == (44, 109)
    assert given.merged(HOST) == {"PATH": "/usr/bin", "HIP_VISIBLE_DEVICES": "0"}


def test_without_a_container_the_gpu_keeps_its_number() -> None:
    assert access.by_variables(gpu("amd")).merged(HOST) == {"PATH": "/usr/bin", "HIP_VISIBLE_DEVICES": "3"}
    assert access.by_variables(None).merged(HOST) == HOST


def test_an_image_gets_amds_gpu_by_cdi_where_the_engine_has_it_and_by_its_nodes_elsewhere() -> None:
    by_cdi = access.by_engine(gpu("amd"), {"CDISpecDirs": ["/etc/cdi"]}, frozenset({"amd.com/gpu=3"}))
    assert by_cdi.requests == ({"Driver": "cdi", "DeviceIDs": ["amd.com/gpu=3"]},)
    assert (by_cdi.nodes, by_cdi.groups) == ((), (44, 109))
    assert by_cdi.seen == gpu("amd").devices
    for info, names in (({}, {"amd.com/gpu=3"}), ({"CDISpecDirs": ["/etc/cdi"]}, {"amd.com/gpu=0"})):
        by_nodes = access.by_engine(gpu("amd"), info, frozenset(names))
        assert by_nodes == access.by_nodes(gpu("amd"))


def test_an_image_gets_nvidias_gpu_by_the_engines_own_request() -> None:
    given = access.by_engine(gpu("nvidia"), {}, frozenset())
    assert given.requests == ({"Driver": "nvidia", "DeviceIDs": ["3"], "Capabilities": [["gpu"]]},)
    assert given.merged(HOST)["CUDA_VISIBLE_DEVICES"] == "0"
    assert given.nodes == ()


def below(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


def test_of_amds_gpu_an_engine_that_passes_it_in_by_name_shows_its_card_too(tmp_path: Path) -> None:
    drm = "sys/class/drm/renderD131/device/drm"
    below(tmp_path, f"{drm}/card4", f"{drm}/renderD131", f"{drm}/controlD64")
    amd = replace(gpu("amd"), render_minor=131)
    given = access.by_engine(amd, {"CDISpecDirs": ["/etc/cdi"]}, frozenset({"amd.com/gpu=3"}), tmp_path)
    assert set(map(str, given.seen)) == {"/dev/kfd", "/dev/dri/renderD131", "/dev/dri/card4"}


@pytest.mark.parametrize("by", [frozenset[str](), frozenset({"nvidia.com/gpu=3"})], ids=["its own request", "CDI"])
def test_of_nvidias_gpu_an_engine_shows_what_its_toolkit_adds(by: frozenset[str], tmp_path: Path) -> None:
    drm = "sys/bus/pci/devices/0000:c1:00.0/drm"
    below(tmp_path, "dev/nvidia-caps/nvidia-cap1", "dev/nvidia-caps/nvidia-cap2", f"{drm}/card2", f"{drm}/renderD129")
    nvidia = replace(gpu("nvidia"), pci="0000:c1:00.0")
    given = access.by_engine(nvidia, {"CDISpecDirs": ["/etc/cdi"]}, by, tmp_path)
    assert set(map(str, given.seen)) == {
        "/dev/nvidia3",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps/nvidia-cap2",
        "/dev/dri/card2",
        "/dev/dri/renderD129",
    }


@pytest.mark.parametrize("vendor", ["amd", "nvidia"])
@pytest.mark.guard("one GPU")
def test_a_gpu_that_is_given_by_its_nodes_is_seen_by_those(vendor: str) -> None:
    given = access.by_nodes(gpu(vendor))
    assert given.seen == given.nodes == gpu(vendor).devices


def test_without_a_gpu_nothing_is_given() -> None:
    assert access.by_nodes(None) == access.by_engine(None, {}, frozenset()) == access.Access()
