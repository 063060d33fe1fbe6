"""What a command is given for one GPU, and that nothing else chooses another one for it."""

from __future__ import annotations

from pathlib import Path

from sandbox.devices import access
from sandbox.devices.record import Gpu

HOST = {"PATH": "/usr/bin", "ROCR_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "5"}


def gpu(vendor: str, index: int = 3) -> Gpu:
    nodes = ("/dev/kfd", "/dev/dri/renderD131") if vendor == "amd" else ("/dev/nvidia3", "/dev/nvidiactl")
    return Gpu(
        vendor="amd" if vendor == "amd" else "nvidia", index=index, name="", gfx=None, pci="", render_minor=None,
        devices=tuple(map(Path, nodes)), groups=(44, 109), accessible=True, card="",
    )  # fmt: skip


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
    for info, names in (({}, {"amd.com/gpu=3"}), ({"CDISpecDirs": ["/etc/cdi"]}, {"amd.com/gpu=0"})):
        by_nodes = access.by_engine(gpu("amd"), info, frozenset(names))
        assert by_nodes == access.by_nodes(gpu("amd"))


def test_an_image_gets_nvidias_gpu_by_the_engines_own_request() -> None:
    given = access.by_engine(gpu("nvidia"), {}, frozenset())
    assert given.requests == ({"Driver": "nvidia", "DeviceIDs": ["3"], "Capabilities": [["gpu"]]},)
    assert given.merged(HOST)["CUDA_VISIBLE_DEVICES"] == "0"


def test_without_a_gpu_nothing_is_given() -> None:
    assert access.by_nodes(None) == access.by_engine(None, {}, frozenset()) == access.Access()
