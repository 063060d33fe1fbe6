"""The NVIDIA GPUs that their driver lists below /proc/driver/nvidia/gpus, and what their own tool tells of them.

Does not know about slices of a GPU (MIG), which that folder does not show. The files are described in "Using the
/proc File System Interface" of NVIDIA's driver README.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from sandbox.devices import sysfs
from sandbox.devices.record import Found, Gpu, numbered

GPUS = "proc/driver/nvidia/gpus"
_ANSWER_S = 10.0
_CONTROL = Path("/dev/nvidiactl")
_MEMORY = (Path("/dev/nvidia-uvm"), Path("/dev/nvidia-uvm-tools"))  # made on first use on some machines


def find(root: Path) -> Found:
    """Every GPU in the order of the PCI bus; those that could not be read are notes."""
    gpus, notes = [], []
    for folder in _by_address(root / GPUS):
        try:
            gpus.append(_gpu(root, folder))
        except (OSError, ValueError) as error:
            notes.append(f"NVIDIA GPU {folder.name} is left out: {error}")
    return Found(numbered(gpus), tuple(notes))


def ask(*fields: str, pci: str | None = None) -> list[list[float | None]]:
    """What `nvidia-smi` says of all GPUs, or of one: a row for each, None for what is no number. No rows without it."""
    chosen = [f"--id={pci}"] if pci is not None else []
    command = ["nvidia-smi", *chosen, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(",") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return [[sysfs.number(part) for part in row] for row in rows if len(row) == len(fields)]


def _by_address(folder: Path) -> list[Path]:
    try:
        found = [path for path in folder.iterdir() if sysfs.PCI_ADDRESS.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: [int(part, 16) for part in path.name.replace(".", ":").split(":")])


def _gpu(root: Path, folder: Path) -> Gpu:
    """Raises: OSError, ValueError when the driver keeps it out or does not say which node it has."""
    says = sysfs.fields(sysfs.read(folder / "information"), ":")
    if says.get("GPU Excluded", "No") != "No":
        raise ValueError("it is excluded from use in the driver's settings")
    minor = says.get("Device Minor", "")
    if not (minor.isascii() and minor.isdigit()):
        raise ValueError(f"its device minor is {minor[:40]!r}")
    needed = (Path(f"/dev/nvidia{int(minor)}"), _CONTROL)
    devices = (*needed, *(device for device in _MEMORY if sysfs.exists(root, device)))
    identity = says.get("GPU UUID", "")
    return Gpu(
        vendor="nvidia",
        index=0,
        name=says.get("Model") or "NVIDIA GPU",
        gfx=None,
        pci=folder.name,
        render_minor=None,
        devices=devices,
        groups=sysfs.groups(root, devices),
        accessible=all(sysfs.exists(root, device) for device in needed),
        card=f"{folder.name[:-1]}0",
        unique_id=identity if identity.startswith("GPU-") and "?" not in identity else None,
    )
