"""The AMD GPUs that the compute driver (KFD) lists, from its topology in sysfs.

Does not open a device or ask a library. The files are described by the kernel's `kfd_topology.c`; what the
runtime makes of them by `libhsakmt/src/topology.c` in ROCm/ROCR-Runtime.

Which devices are one card, no file says, so it is told apart here. `hive_id` names all cards that xGMI joins, not one
card (kernel documentation, "AMDGPU XGMI Support"). `unique_id` differs between the two dies of an MI250, and with
newer drivers between the partitions of an MI300X too. Therefore:

- Partitions are the nodes of one PCI device: KFD adds the number of the partition to the function in `location_id`,
  or, in other versions of the driver, keeps it in bits 31 to 28. Both are left out here.
- The dies of an MI250 or MI250X have PCI addresses of their own. Within a package four Infinity Fabric links join
  them, between packages one or two ("AMD Instinct MI250 microarchitecture", ROCm documentation); KFD gives the
  bandwidth of one link and of all (`min_bandwidth`, `max_bandwidth` of `io_links`), whose ratio is their number. A
  recorded machine of 8 MI250 (`topo_16p1h.xml` in ROCm/rccl) has four in each package and nowhere else.
- A driver older than that bandwidth gives 0. Then dies are paired in the order of their PCI addresses, as they lie in
  that machine and in one of 4 MI250X (`topo_8p_90a_1.xml`), and a note says that this was a guess.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sandbox.devices import sysfs
from sandbox.devices.record import Found, Gpu, numbered

NODES = "sys/class/kfd/kfd/topology/nodes"
_AMD = 0x1002
_TWO_DIES = frozenset({0x7408, 0x740C})  # MI250X; MI250 and MI250X. An MI210 (0x740f) is one die of the same
_LINKS_IN_PACKAGE = 4
_XGMI = 11  # HSA_IOLINK_TYPE_XGMI
_LOCAL_HEAPS = frozenset({1, 2})  # HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC and _PRIVATE


@dataclass(frozen=True)
class _Node:
    number: int
    folder: Path
    name: str | None
    properties: dict[str, int]
    pci: str

    @property
    def minor(self) -> int:
        return self.properties.get("drm_render_minor", 0)


def find(root: Path) -> Found:
    """Every node that is a GPU, in the order of the topology; those that could not be read are notes."""
    nodes, notes = _nodes(root)
    cards, doubts = _cards(nodes)
    gpus = numbered(_gpu(root, node, cards[node.number]) for node in nodes)
    return Found(gpus, (*notes, *doubts))


def gfx_name(version: int) -> str | None:
    """What `gfx_target_version` stands for: major, minor and stepping, two decimal digits for each of the last two.

    In the name minor and stepping are one hexadecimal digit each: 90402 is gfx942 and 90010 is gfx90a. None for
    numbers that are no such version (0 on a CPU).
    """
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if major and minor < 16 and stepping < 16 else None


def _nodes(root: Path) -> tuple[list[_Node], list[str]]:
    found, notes, hidden = [], [], []
    for number, folder in sysfs.numbered(root / NODES):
        try:
            node = _node(root, number, folder)
        except PermissionError:
            hidden.append(number)
        except (OSError, ValueError) as error:
            notes.append(f"KFD node {number} is left out: {error}")
        else:
            found += [] if node is None else [node]
    if hidden:  # KFD refuses to tell about a GPU whose render node our device control group does not allow
        listed = ", ".join(map(str, hidden))
        notes.append(f"KFD nodes closed to this process, as those of GPUs that a container was not given: {listed}")
    elif not notes:
        notes = _not_listed(root, {node.minor for node in found})
    return found, notes


def _node(root: Path, number: int, folder: Path) -> _Node | None:
    """None for a node without a GPU. Raises: OSError, ValueError when it does not say what a GPU's node must."""
    gpu_id = sysfs.read(folder / "gpu_id").strip()
    if not (gpu_id.isascii() and gpu_id.isdigit()):
        raise ValueError(f"its gpu_id is {gpu_id[:40]!r}")
    if int(gpu_id) == 0:
        return None
    properties = sysfs.numbers(sysfs.read(folder / "properties"))
    if missing := [name for name in ("simd_count", "drm_render_minor", "location_id") if name not in properties]:
        raise ValueError(f"its properties have no {' and no '.join(missing)}")
    if properties["simd_count"] == 0 or properties.get("vendor_id", _AMD) != _AMD:
        return None
    pci = _pci_address(root, properties)
    return _Node(number, folder, sysfs.text(folder / "name"), properties, pci)


def _pci_address(root: Path, properties: dict[str, int]) -> str:
    """Of the PCI function behind the render node; a partition's is a platform device, so its card's is made up."""
    device = root / f"sys/class/drm/renderD{properties['drm_render_minor']}/device"
    slot = sysfs.fields(sysfs.text(device / "uevent") or "", "=").get("PCI_SLOT_NAME", "")
    for name in (_target(device), slot):
        if sysfs.PCI_ADDRESS.fullmatch(name):
            return name
    location = properties["location_id"]
    return f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.0"


def _target(link: Path) -> str:
    return os.path.basename(os.path.realpath(link))


def _cards(nodes: list[_Node]) -> tuple[dict[int, str], list[str]]:
    """The address of its card for each node's number, and what is doubtful about it."""
    cards = {node.number: f"{node.pci[:-1]}0" for node in nodes}
    dies = {node.number: node for node in nodes if node.properties.get("device_id") in _TWO_DIES}
    others: dict[int, int] = {}
    for number, die in dies.items():
        for link in sysfs.properties(die.folder / "io_links"):
            if link.get("type") == _XGMI and _links(link) >= _LINKS_IN_PACKAGE and "node_to" in link:
                others[number] = link["node_to"]
                others.setdefault(link["node_to"], number)
    notes = [
        f"the other die of {dies[number].pci} is KFD node {other}, which is not visible here"
        for number, other in others.items()
        if number in dies and other not in dies
    ]
    alone = sorted((node.pci, number) for number, node in dies.items() if number not in others)
    if alone:
        addresses = ", ".join(pci for pci, _ in alone)
        notes.append(f"the driver does not tell which dies share a card; taken in the order of their PCI: {addresses}")
        others.update((second[1], first[1]) for first, second in zip(alone[::2], alone[1::2], strict=False))
    for number, other in others.items():
        if number in dies and other in dies:
            cards[number] = cards[other] = min(cards[number], cards[other])
    return cards, notes


def _links(link: dict[str, int]) -> int:
    """How many links join two nodes directly; 0 when the driver does not tell."""
    one, all_of_them = link.get("min_bandwidth", 0), link.get("max_bandwidth", 0)
    return all_of_them // one if one else 0


def _gpu(root: Path, node: _Node, card: str) -> Gpu:
    of_node = node.properties
    devices = (Path("/dev/kfd"), Path(f"/dev/dri/renderD{node.minor}"))
    gfx = gfx_name(of_node.get("gfx_target_version", 0))
    banks = sysfs.properties(node.folder / "mem_banks")
    simds_per_unit, identity = of_node.get("simd_per_cu", 0), of_node.get("unique_id", 0)

    def attribute(name: str) -> str | None:
        places = (f"sys/bus/pci/devices/{node.pci}", f"sys/class/drm/renderD{node.minor}/device")
        return next(filter(None, (sysfs.text(root / place / name) for place in places)), None)

    return Gpu(
        vendor="amd",
        index=0,
        name=attribute("product_name") or node.name or gfx or "AMD GPU",
        gfx=gfx,
        pci=node.pci,
        render_minor=node.minor,
        devices=devices,
        groups=sysfs.groups(root, devices),
        accessible=all(sysfs.exists(root, device) for device in devices),
        card=card,
        partition=attribute("current_compute_partition"),
        memory_partition=attribute("current_memory_partition"),
        unique_id=f"GPU-{identity:016x}" if identity else None,
        memory_bytes=sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _LOCAL_HEAPS)
        or None,
        compute_units=of_node["simd_count"] // simds_per_unit if simds_per_unit else None,
    )


def _not_listed(root: Path, listed: set[int]) -> list[str]:
    """AMD's render nodes of which KFD knows nothing: the driver has no compute for them, or it did not start."""
    notes = []
    for minor, folder in sysfs.numbered(root / "sys/class/drm", "renderD"):
        if minor not in listed and sysfs.text(folder / "device/vendor") == f"{_AMD:#06x}":
            notes.append(f"renderD{minor} ({_target(folder / 'device')}) is AMD's, but no node of KFD")
    return notes
