"""GPUs are found from the kernel's files, on machines of every kind that are folders here."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.devices import gpus, kfd
from sandbox.devices.gpus import Gpu, choose_gpu, driver_versions, find_gpus, visible_environment
from sandbox.errors import NoSuchGpu
from tests.files import write_files
from tests.sandbox.conftest import as_root
from tests.sandbox.devices import machines

H200 = "0000:18:00.0"


def found(root: Path) -> tuple[Gpu, ...]:
    """The GPUs of a machine of which everything can be read."""
    result = find_gpus(root)
    assert result.notes == ()
    return result.gpus


def nodes(gpu: Gpu) -> list[str]:
    return [str(device) for device in gpu.devices]


def buses(gpus: tuple[Gpu, ...], of: str = "card") -> list[str]:
    return [getattr(gpu, of)[5:7] for gpu in gpus]


def test_a_machine_without_a_gpu_has_none_and_nothing_to_say(tmp_path: Path) -> None:
    assert found(tmp_path) == ()
    machines.Machine(tmp_path, cpus=1)  # the driver is there, and lists the CPU only
    assert found(tmp_path) == ()
    assert find_gpus() == find_gpus(Path("/"))  # this machine unless another is named


def test_one_card_is_told_with_all_that_the_kernel_says_and_only_its_own_memory_counts(tmp_path: Path) -> None:
    machines.one_mi210(tmp_path)
    card = machines.gpu(
        name="AMD Instinct MI210",
        gfx="gfx90a",
        pci="0000:63:00.0",
        render_minor=128,
        devices=(Path("/dev/kfd"), Path("/dev/dri/renderD128")),
        card="0000:63:00.0",
        unique_id="GPU-15c0ffee00000063",
        memory_bytes=68702699520,
        compute_units=104,
    )
    assert found(tmp_path) == (card,)
    banks = tmp_path / machines.NODES / "1" / "mem_banks"
    write_files(banks, {f"{heap}/properties": f"heap_type {heap}\nsize_in_bytes 1000\n" for heap in (2, 3, 5)})
    assert found(tmp_path)[0].memory_bytes == 68702699520 + 1000  # type 2 is local too, only not mapped for the host
    shutil.rmtree(banks)
    assert found(tmp_path) == (replace(card, memory_bytes=None),)


def test_the_instruction_set_is_decoded_in_hexadecimal_digits() -> None:
    names = {90008: "gfx908", 90010: "gfx90a", 90402: "gfx942", 90500: "gfx950", 100302: "gfx1032", 110501: "gfx1151"}
    for version, name in {**names, 120001: "gfx1201", 0: None, 110099: None, 91600: None, 7: None}.items():
        assert kfd.gfx_name(version) == name, version


def test_the_order_is_that_of_the_topology_by_number_and_each_has_a_render_node(tmp_path: Path) -> None:
    machine = machines.eight_mi300x(tmp_path)  # its nodes are 2 to 9, and the next is 10, before 2 in the alphabet
    machine.amd(machines.MI300X, 0x03, 200)
    result = found(tmp_path)
    assert [gpu.index for gpu in result] == list(range(9))
    minors = [*range(128, 192, 8), 200]
    assert [gpu.render_minor for gpu in result] == minors and result[-1].pci == "0000:03:00.0"
    assert [nodes(gpu) for gpu in result] == [["/dev/kfd", f"/dev/dri/renderD{minor}"] for minor in minors]


def test_the_order_of_nvidia_is_that_of_the_bus_and_what_is_excluded_takes_no_number(tmp_path: Path) -> None:
    machine = machines.Machine(tmp_path)
    for minor, address in enumerate(["0000:c1:00.0", "0001:02:00.0", H200]):
        machine.nvidia(address, minor)
    ordered = [("0000:18:00.0", "/dev/nvidia2"), ("0000:c1:00.0", "/dev/nvidia0"), ("0001:02:00.0", "/dev/nvidia1")]
    assert [(gpu.pci, str(gpu.devices[0])) for gpu in found(tmp_path)] == ordered
    machine.nvidia(H200, 2, excluded="Yes")
    result = find_gpus(tmp_path)
    assert [(gpu.index, gpu.pci) for gpu in result.gpus] == [(0, "0000:c1:00.0"), (1, "0001:02:00.0")]
    assert f"{H200} is left out: it is excluded" in result.notes[0]


def test_an_h200_is_told_with_the_nodes_that_cuda_needs_and_numbered_apart_from_amds(tmp_path: Path) -> None:
    machines.one_h200(tmp_path)
    (gpu,) = found(tmp_path)
    assert (gpu.vendor, gpu.name, gpu.gfx, gpu.card) == ("nvidia", "NVIDIA H200", None, H200)
    assert nodes(gpu) == ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]  # the tools' node is not there
    assert gpu.unique_id == "GPU-9221d5d1-b60b-a624-bf14-000000000000"
    (tmp_path / "dev/nvidia-uvm-tools").touch()
    assert nodes(found(tmp_path)[0])[-1] == "/dev/nvidia-uvm-tools"
    machines.one_mi210(tmp_path)
    assert [(gpu.vendor, gpu.index) for gpu in found(tmp_path)] == [("amd", 0), ("nvidia", 0)]


def test_the_two_dies_of_an_mi250_are_one_card_and_where_no_links_are_counted_that_is_said_to_be_a_guess(
    tmp_path: Path,
) -> None:
    machines.four_mi250(tmp_path / "counted")
    result = found(tmp_path / "counted")
    assert buses(result, "pci") == ["4e", "51", "56", "59", "0e", "11", "16", "19"]
    assert buses(result) == (cards := ["4e", "4e", "56", "56", "0e", "0e", "16", "16"])
    assert len({gpu.unique_id for gpu in result}) == 8
    shutil.rmtree(tmp_path / "counted" / machines.NODES / "2")  # the second of the first card
    hidden = find_gpus(tmp_path / "counted")
    assert buses(hidden.gpus) == cards[1:]
    assert any("the other die of 0000:4e:00.0 is KFD node 2" in note for note in hidden.notes)
    machines.four_mi250(tmp_path / "not counted", link_counts=False)
    guessed = find_gpus(tmp_path / "not counted")
    assert buses(guessed.gpus) == cards and "does not tell which dies share a card" in "".join(guessed.notes)


@pytest.mark.parametrize(
    ("model", "pairs", "cards"),
    [
        (machines.MI250, ((0, 3), (1, 2)), ["40", "41", "41", "40"]),  # wherever they lie in the topology
        (machines.MI210, ((0, 1), (2, 3)), ["40", "41", "42", "43"]),  # cards that a bridge joins
    ],
)
def test_four_links_make_one_card_of_two_dies_and_of_nothing_else(
    model: machines.Model, pairs: tuple[tuple[int, int], ...], cards: list[str], tmp_path: Path
) -> None:
    machine = machines.Machine(tmp_path)
    folders = [machine.amd(model, bus, 64 + bus) for bus in (0x40, 0x41, 0x42, 0x43)]
    for first, second in pairs:
        machine.xgmi(folders[first], 0, second, 4)
        machine.xgmi(folders[second], 0, first, 4)
    assert buses(found(tmp_path)) == cards


@pytest.mark.parametrize("number_on_top", [False, True], ids=["in the function", "in bits 31 to 28"])
def test_the_partitions_of_a_card_share_it_and_are_devices_of_their_own(number_on_top: bool, tmp_path: Path) -> None:
    machines.eight_mi300x_in_64(tmp_path, number_on_top=number_on_top)
    result = found(tmp_path)
    assert len(result) == len({gpu.devices for gpu in result}) == 64
    assert Counter(gpu.card for gpu in result) == {f"0000:{bus:02x}:00.0": 8 for bus in machines.MI300X_BUSES}
    assert {gpu.pci for gpu in result} == {gpu.card for gpu in result}
    assert {(gpu.partition, gpu.memory_partition) for gpu in result} == {("CPX", "NPS1")}
    assert {(gpu.compute_units, gpu.memory_bytes, gpu.gfx) for gpu in result} == {(38, 25767706624, "gfx942")}


def test_without_drm_in_sysfs_the_address_comes_from_the_topology(tmp_path: Path) -> None:
    machines.eight_mi300x(tmp_path)
    assert {(gpu.partition, gpu.memory_partition) for gpu in found(tmp_path)} == {("SPX", "NPS1")}
    shutil.rmtree(tmp_path / "sys/class/drm")
    shutil.rmtree(tmp_path / "sys/bus")
    assert buses(found(tmp_path), "pci") == ["05", "26", "46", "65", "85", "a6", "c6", "e5"]
    assert {gpu.name for gpu in found(tmp_path)} == {"ip discovery"}


def test_a_gpu_whose_nodes_are_not_given_is_not_accessible_and_takes_no_number_from_what_is_there(
    tmp_path: Path,
) -> None:
    """AMD's runtime passes over a GPU without a render node, so the second of two that are given is number 1."""
    machines.eight_mi300x(tmp_path, with_nodes=(2, 5))
    result = found(tmp_path)
    assert [(gpu.index, gpu.render_minor) for gpu in result if gpu.accessible] == [(0, 144), (1, 168)]
    assert [gpu.index for gpu in result] == list(range(8))
    assert nodes(result[0]) == ["/dev/kfd", "/dev/dri/renderD144"]
    (tmp_path / "dev/kfd").unlink()
    assert not any(gpu.accessible for gpu in found(tmp_path))


def test_nodes_that_the_kernel_closes_to_a_container_are_one_note(
    open_folder: Path, as_another_user: Callable[[Callable[[], str]], str]
) -> None:
    machines.eight_mi300x(open_folder)
    for number in (2, 3, 9):
        for file in (open_folder / machines.NODES / str(number)).glob("[gnp]*"):
            file.chmod(0)
    result = as_another_user(lambda: repr(find_gpus(open_folder)))
    assert result.startswith("Found(gpus=(Gpu(vendor='amd', index=0, ") and result.count("Gpu(") == 5
    assert "KFD nodes closed to this process, as those of GPUs that a container was not given: 2, 3, 9" in result


@as_root
def test_groups_are_numbers_of_those_who_may_read_and_write_and_never_roots(tmp_path: Path) -> None:
    machines.eight_mi300x(tmp_path)
    assert found(tmp_path)[0].groups == ()
    for minor, group, mode in ((128, 44, 0o660), (136, 45, 0o640), (144, 109, 0o660)):
        file = tmp_path / f"dev/dri/renderD{minor}"
        os.chown(file, 0, group)
        file.chmod(mode)
    os.chown(tmp_path / "dev/kfd", 0, 109)
    (tmp_path / "dev/kfd").chmod(0o660)
    assert [gpu.groups for gpu in found(tmp_path)[:3]] == [(44, 109), (109,), (109,)]


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("gpu_id", None, "KFD node 2 is left out: .*No such file"),
        ("properties", None, "KFD node 2 is left out: .*No such file"),
        ("gpu_id", "\x00\xffnonsense", "KFD node 2 is left out: its gpu_id is"),
        ("gpu_id", "", "KFD node 2 is left out: its gpu_id is ''"),
        ("properties", "", "no simd_count and no drm_render_minor and no location_id"),
        ("properties", "simd_count 1216\ndrm_render_minor x\nlocation_id 1 2\n", "no drm_render_minor and no location"),
    ],
)
def test_a_node_that_vanished_or_is_garbled_is_left_out_with_a_note(
    file: str, content: str | None, says: str, tmp_path: Path
) -> None:
    machines.eight_mi300x(tmp_path)
    path = tmp_path / machines.NODES / "2" / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    result = find_gpus(tmp_path)
    assert [gpu.render_minor for gpu in result.gpus] == list(range(136, 192, 8))
    (note,) = result.notes
    assert re.search(says, note)


def test_a_tree_of_nonsense_raises_nothing(tmp_path: Path) -> None:
    machine = machines.Machine(tmp_path)
    machine.node(77, "", "simd_count 99999999999999999999\ndrm_render_minor 128\nlocation_id 18446744073709551615")
    write_files(
        tmp_path,
        {
            f"{machines.NODES}/1": "a file",
            f"{machines.NODES}/2/gpu_id/a": "a folder",
            f"{machines.NODES}/x/gpu_id": "5",
            f"{machines.NODES}/0/mem_banks/0/properties": "size_in_bytes -5\nheap_type 1\n",
            f"{machines.NODES}/0/mem_banks/1/properties": f"size_in_bytes {'9' * 5000}\nheap_type 1\n",
            f"{machines.NODES}/0/io_links/0/properties/a": "a folder",
            f"proc/driver/nvidia/gpus/{H200}/information": "Model\nDevice Minor: ??\n",
            "proc/driver/nvidia/gpus/notes": "not an address",
            "sys/class/drm/renderDx/device/vendor": "0x1002",
        },
    )
    (tmp_path / "sys/class/drm/renderD128").mkdir()
    (tmp_path / "sys/class/drm/renderD128/device").symlink_to("device")
    result = find_gpus(tmp_path)
    (gpu,) = result.gpus
    assert (gpu.render_minor, gpu.gfx, gpu.memory_bytes, gpu.accessible) == (128, None, None, False)
    assert len(result.notes) == 3


def test_a_render_node_without_compute_is_noted(tmp_path: Path) -> None:
    machines.one_mi210(tmp_path).function(machines.MI300X, 0x05, 136)
    assert find_gpus(tmp_path).notes == ("renderD136 (0000:05:00.0) is AMD's, but no node of KFD",)


def test_a_process_names_its_gpu_by_number_and_one_that_got_no_other_by_0(tmp_path: Path) -> None:
    machines.eight_mi300x(tmp_path)
    machines.one_h200(tmp_path)
    result = found(tmp_path)
    assert visible_environment(result[5]) == {"HIP_VISIBLE_DEVICES": "5"}
    assert visible_environment(result[5], alone=True) == {"HIP_VISIBLE_DEVICES": "0"}
    assert visible_environment(result[8]) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
    assert set(visible_environment(result[8])) < gpus.HIDING_VARIABLES  # those of other layers are taken away


def test_the_first_that_is_visible_is_chosen_or_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "find_gpus", lambda: find_gpus(tmp_path))
    assert choose_gpu(None, {}) is None and choose_gpu(None, {"CUDA_VISIBLE_DEVICES": "1"}) is None
    with pytest.raises(NoSuchGpu, match="no GPU 0\\. This machine has none"):
        choose_gpu(0, {})
    machines.eight_mi300x(tmp_path)
    every = found(tmp_path)
    assert choose_gpu(None, {}) == every[0] and choose_gpu(6, {}) == every[6]
    assert choose_gpu(None, {"HIP_VISIBLE_DEVICES": "3,4"}) == every[3]
    assert choose_gpu(None, {"CUDA_VISIBLE_DEVICES": "GPU-4f2"}) == every[0]
    assert (
        choose_gpu(None, {"CUDA_VISIBLE_DEVICES": ""}) is None
        and choose_gpu(None, {"HIP_VISIBLE_DEVICES": "-1"}) is None
    )
    with pytest.raises(NoSuchGpu, match=r"no GPU 8\. This machine has 0 \("):
        choose_gpu(8, {})


def test_versions_are_told_where_they_are_known(tmp_path: Path) -> None:
    assert driver_versions(tmp_path) == {}
    machine = machines.one_mi210(tmp_path)
    machines.one_h200(tmp_path)
    write_files(tmp_path / "opt", {f"rocm-{v}/.info/version": f"{v}-47\n" for v in ("6.4.1", "6.10.0")})
    assert driver_versions(tmp_path) == {"amdgpu": "6.12.12", "ROCm": "6.10.0-47", "NVIDIA": "570.86.15"}
    machine.link("opt/rocm", "opt/rocm-6.4.1")
    assert driver_versions(tmp_path)["ROCm"] == "6.4.1-47"
