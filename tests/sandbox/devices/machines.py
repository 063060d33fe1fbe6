"""Trees of sysfs, proc and dev that look like machines with GPUs, written into a folder.

They are written after the form of the kernel's files, not recorded here. What they follow: the recorded topologies of
an MI210 machine and of partitioned MI308X in `testdata/` of ROCm/k8s-device-plugin (names, order and values of
`properties`; the number of a partition in the function of `location_id`; render minors in steps of eight), the
recorded addresses and link counts of MI250 dies in `tools/topo_expl/models/topo_16p1h.xml` of ROCm/rccl, the memory
bank of an MI300X partition and the size of an MI250's in issues of ROCm, and an H200's `information`. Identities, hives
and the addresses of the MI300X are made up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sandbox.devices.record import Gpu
from tests.files import write_files

NODES = "sys/class/kfd/kfd/topology/nodes"
# Of four MI250, eight dies: bus numbers in the order of the topology, and the links between dies, by bus.
MI250_BUSES = (0x4E, 0x51, 0x56, 0x59, 0x0E, 0x11, 0x16, 0x19)
MI250_LINKS = {
    (0x4E, 0x51): 4,
    (0x4E, 0x56): 1,
    (0x4E, 0x0E): 2,
    (0x51, 0x56): 1,
    (0x51, 0x59): 1,
    (0x51, 0x11): 1,
    (0x56, 0x59): 4,
    (0x56, 0x16): 1,
    (0x59, 0x19): 2,
    (0x0E, 0x11): 4,
    (0x16, 0x19): 4,
}
MI300X_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)


class Model(NamedTuple):
    device_id: int
    gfx_target_version: int
    name: str  # as KFD has it
    product_name: str
    simds: int
    memory_bytes: int


MI210 = Model(29711, 90010, "aldebaran", "AMD Instinct MI210", 416, 68702699520)
MI250 = Model(29708, 90010, "aldebaran", "AMD Instinct MI250", 416, 68702699520)
MI300X = Model(29857, 90402, "ip discovery", "AMD Instinct MI300X OAM", 1216, 206141652992)
MI300X_PARTITION = MI300X._replace(simds=152, memory_bytes=25767706624)
MODES = {"current_compute_partition": "SPX", "current_memory_partition": "NPS1"}


def gpu(**known: Any) -> Gpu:
    """An AMD GPU of which little is known but what is given."""
    nothing = {"gfx": None, "render_minor": None, "devices": (), "groups": (), "accessible": True}
    return Gpu(**{"vendor": "amd", "index": 0, "name": "", "pci": "", "card": "", **nothing, **known})


class Machine:
    """A tree below `root`; nodes of the topology are numbered as they are added, the first `cpus` of them CPUs."""

    def __init__(self, root: Path, *, cpus: int = 0) -> None:
        self.root = root
        self.nodes = 0
        for _ in range(cpus):
            self.node(0, "", "cpu_cores_count 64\nsimd_count 0\nsimd_per_cu 0\ngfx_target_version 0\nvendor_id 0")

    def node(self, gpu_id: int, name: str, properties: str) -> str:
        """Adds a node; returns its folder below the root."""
        folder = f"{NODES}/{self.nodes}"
        self.nodes += 1
        write_files(self.root / folder, {"gpu_id": f"{gpu_id}\n", "name": f"{name}\n", "properties": f"{properties}\n"})
        return folder

    def amd(self, model: Model, bus: int, minor: int, *, location: int | None = None, node: bool = True) -> str:
        """A device of the topology; the bus tells its identity, so partitions of one card share it."""
        folder = self.node(
            1000 + 37 * minor,
            model.name,
            f"cpu_cores_count 0\nsimd_count {model.simds}\nsimd_id_base 2147487744\nwave_front_size 64\nsimd_per_cu 4\n"
            f"gfx_target_version {model.gfx_target_version}\nvendor_id 4098\ndevice_id {model.device_id}\n"
            f"location_id {bus << 8 if location is None else location}\ndomain 0\ndrm_render_minor {minor}\n"
            f"hive_id 2095653680343411291\nunique_id {0x15C0FFEE00000000 + bus}\nmax_engine_clk_ccompute 3800",
        )
        bank = f"heap_type 1\nsize_in_bytes {model.memory_bytes}\nflags 0\nwidth 8192\nmem_clk_max 1300\n"
        there = {f"dev/dri/renderD{minor}": ""} if node else {}
        write_files(self.root, {f"{folder}/mem_banks/0/properties": bank, "dev/kfd": "", **there})
        return folder

    def function(self, model: Model, bus: int, minor: int, **attributes: str) -> None:
        """The PCI function of a card, and its render node."""
        address = f"0000:{bus:02x}:00.0"
        place = f"sys/devices/pci0000:00/{address}"
        uevent = f"DRIVER=amdgpu\nPCI_ID=1002:{model.device_id:04X}\nPCI_SLOT_NAME={address}"
        files = {"vendor": "0x1002", "uevent": uevent, "product_name": model.product_name, **attributes}
        write_files(self.root / place, {name: f"{value}\n" for name, value in files.items()})
        self.link(f"sys/bus/pci/devices/{address}", place)
        self.render(place, minor)

    def card(self, model: Model, bus: int, minor: int, *, node: bool = True, **attributes: str) -> str:
        """A whole card: its device of the topology and its PCI function."""
        self.function(model, bus, minor, **attributes)
        return self.amd(model, bus, minor, node=node)

    def partition(self, number: int, minor: int) -> None:
        """The platform device that stands for every partition but a card's first."""
        place = f"sys/devices/platform/amdgpu_xcp_{number}"
        write_files(self.root / place, {"uevent": "DRIVER=amdgpu_xcp_drv\nMODALIAS=platform:amdgpu_xcp\n"})
        self.render(place, minor)

    def render(self, place: str, minor: int) -> None:
        folder = f"{place}/drm/renderD{minor}"
        write_files(self.root / folder, {"uevent": f"DEVNAME=dri/renderD{minor}\n"})
        self.link(f"{folder}/device", place)
        self.link(f"sys/class/drm/renderD{minor}", folder)

    def link(self, at: str, to: str) -> None:
        """Relative, as in sysfs."""
        path = self.root / at
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(self.root / to, path.parent))

    def xgmi(self, folder: str, number: int, to: int, links: int) -> None:
        one = 16 * 25000 // 8  # MB/s of one link, as the driver has it for an MI250
        lines = f"type 11\nnode_to {to}\nmin_bandwidth {one if links else 0}\nmax_bandwidth {one * links}\nflags 1\n"
        write_files(self.root, {f"{folder}/io_links/{number}/properties": lines})

    def nvidia(self, address: str, minor: int, *, excluded: str = "No") -> None:
        information = (
            f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-{minor:012x}\nBus Type: \t PCIe\n"
            f"Bus Location: \t {address}\nDevice Minor: \t {minor}\nGPU Excluded:\t {excluded}\n"
        )
        version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC 12.3.0\n"
        write_files(self.root / "proc/driver/nvidia", {f"gpus/{address}/information": information, "version": version})
        write_files(self.root / "dev", dict.fromkeys(("nvidiactl", "nvidia-uvm", f"nvidia{minor}"), ""))


def one_mi210(root: Path) -> Machine:
    machine = Machine(root, cpus=1)
    machine.card(MI210, 0x63, 128)
    write_files(root, {"sys/module/amdgpu/version": "6.12.12\n"})
    return machine


def eight_mi300x(root: Path, *, with_nodes: Sequence[int] = range(8)) -> Machine:
    """In SPX mode, on two CPUs; `with_nodes` are those whose node in /dev is there."""
    machine = Machine(root, cpus=2)
    for number, bus in enumerate(MI300X_BUSES):
        machine.card(MI300X, bus, 128 + 8 * number, node=number in with_nodes, **MODES)
    return machine


def eight_mi300x_in_64(root: Path, *, number_on_top: bool = False) -> Machine:
    """In CPX mode. The partition's number is in bits 31 to 28 of `location_id`, or among the function's."""
    machine = Machine(root, cpus=2)
    for number, bus in enumerate(MI300X_BUSES):
        machine.function(MI300X, bus, 128 + 8 * number, **{**MODES, "current_compute_partition": "CPX"})
        for part in range(8):
            location = bus << 8 | (part << 28 if number_on_top else part)
            machine.amd(MI300X_PARTITION, bus, 128 + 8 * number + part, location=location)
            if part:
                machine.partition(7 * number + part - 1, 128 + 8 * number + part)
    return machine


def four_mi250(root: Path, *, link_counts: bool = True) -> Machine:
    """Eight dies; an older driver tells no bandwidth, and so no number of links."""
    machine = Machine(root, cpus=1)
    numbers = {bus: machine.nodes + number for number, bus in enumerate(MI250_BUSES)}
    for number, bus in enumerate(MI250_BUSES):
        folder = machine.card(MI250, bus, 128 + number)
        ends = {(set(pair) - {bus}).pop(): links for pair, links in MI250_LINKS.items() if bus in pair}
        for at, (other, links) in enumerate(ends.items()):
            machine.xgmi(folder, at, numbers[other], links if link_counts else 0)
    return machine


def one_h200(root: Path) -> Machine:
    machine = Machine(root)
    machine.nvidia("0000:18:00.0", 0)
    return machine
