"""One GPU as the kernel describes it; `gpus.py` finds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Gpu:
    """A device that the vendor's runtime lists: a card, one die of an MI250, or one partition of an MI300X.

    `name` explains and decides nothing; everything else is for programs.
    """

    vendor: Literal["amd", "nvidia"]
    index: int
    """The number by which a `*_VISIBLE_DEVICES` variable means it, in a process that sees the files we see.

    AMD counts the nodes of the KFD topology, NVIDIA in the order of the PCI bus (CUDA_DEVICE_ORDER=PCI_BUS_ID). Both
    runtimes pass over a device whose node is missing, so those that are not `accessible` have the last numbers.
    """
    name: str
    gfx: str | None
    """What AMD's compiler calls the instruction set, such as "gfx942"; None for NVIDIA."""
    pci: str
    """Of the PCI function, such as "0000:c1:00.0"; partitions of one card share it."""
    render_minor: int | None
    """The number in /dev/dri/renderD<minor>; None for NVIDIA, whose compute needs no such node."""
    devices: tuple[Path, ...]
    """The device nodes that a process needs for this GPU and for no other, whether they are there or not."""
    groups: tuple[int, ...]
    """The groups that may read and write those nodes, root's left out: what a user other than root has to be in."""
    accessible: bool
    """All of `devices` are there. In a container the kernel may describe GPUs whose nodes it was not given."""
    card: str
    """The PCI address by which the physical card is known, the lowest where it has several.

    Devices of one card share power, and the partitions of an MI300X their memory too, so they cannot be timed at once.
    """
    partition: str | None = None
    """The compute partition mode of the card ("SPX", "DPX", "QPX", "CPX"), None where it knows no such modes."""
    memory_partition: str | None = None
    """The memory partition mode of the card ("NPS1", "NPS4"), None where it knows no such modes."""
    unique_id: str | None = None
    """The identity as the runtime spells it ("GPU-" and more); None where the kernel does not tell."""
    memory_bytes: int | None = None
    """Local memory of this device; of one partition where the card is partitioned. None for NVIDIA."""
    compute_units: int | None = None


@dataclass(frozen=True)
class Found:
    """The GPUs of a machine, those of one vendor by `index`, and what could not be read of them."""

    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()


def numbered(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The same with their `index`, given in the order in which their runtime meets them."""
    met = sorted(gpus, key=lambda gpu: not gpu.accessible)  # a stable sort: within both kinds the order stays
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(met))
