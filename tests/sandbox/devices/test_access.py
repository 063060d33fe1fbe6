"""What a command is given for one GPU, and that nothing else chooses another one for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.devices import access
from sandbox.devices.record import Gpu
from tests.files import write_files
from tests.sandbox.devices import machines

HOST = {"PATH": "/usr/bin", "ROCR_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "5"}
BY_CDI = {
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "cdi", "ID": "nvidia.com/gpu=3"}]
}


def gpu(vendor: str) -> Gpu:
    nodes = ("/dev/kfd", "/dev/dri/renderD131") if vendor == "amd" else ("/dev/nvidia3", "/dev/nvidiactl")
    return machines.gpu(vendor=vendor, index=3, devices=tuple(map(Path, nodes)), groups=(44, 109), pci="0000:c1:00.0")


@pytest.mark.guard("one GPU")
def test_a_container_gets_the_nodes_of_one_gpu_its_groups_and_its_number_inside() -> None:
    given = access.by_nodes(gpu("amd"))
    assert given.nodes == given.seen == (Path("/dev/kfd"), Path("/dev/dri/renderD131"))
    assert given.groups == (44, 109)
    assert given.merged(HOST) == {"PATH": "/usr/bin", "HIP_VISIBLE_DEVICES": "0"}
    assert access.by_engine(gpu("amd"), BY_CDI) == given  # an image brings AMD's libraries itself


def test_without_a_container_the_gpu_keeps_its_number_and_without_a_gpu_nothing_is_given() -> None:
    assert access.by_variables(gpu("amd")).merged(HOST) == {"PATH": "/usr/bin", "HIP_VISIBLE_DEVICES": "3"}
    assert access.by_variables(None).merged(HOST) == HOST
    assert access.by_nodes(None) == access.by_engine(None, BY_CDI) == access.Access()


@pytest.mark.parametrize(
    ("info", "request_"),
    [
        ({}, {"Driver": "nvidia", "DeviceIDs": ["3"], "Capabilities": [["gpu"]]}),
        ({"DiscoveredDevices": None}, {"Driver": "nvidia", "DeviceIDs": ["3"], "Capabilities": [["gpu"]]}),
        (BY_CDI, {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=3"]}),
    ],
)
def test_an_image_gets_nvidias_gpu_by_the_engine_with_what_its_toolkit_adds(
    info: dict[str, Any], request_: dict[str, Any], tmp_path: Path
) -> None:
    drm = "sys/bus/pci/devices/0000:c1:00.0/drm"
    slices = [f"dev/nvidia-caps/nvidia-cap{number}" for number in (1, 2)]
    write_files(tmp_path, dict.fromkeys([*slices, f"{drm}/card2", f"{drm}/renderD129", f"{drm}/controlD64"], ""))
    given = access.by_engine(gpu("nvidia"), info, tmp_path)
    assert (given.nodes, given.groups, given.requests) == ((), (44, 109), (request_,))
    assert given.merged(HOST)["CUDA_VISIBLE_DEVICES"] == "0"
    own = ("nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "dri/card2", "dri/renderD129")
    assert set(map(str, given.seen)) == {f"/dev/{name}" for name in own} | {f"/{name}" for name in slices}
