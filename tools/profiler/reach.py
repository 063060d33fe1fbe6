"""What the device can reach: measured once on this machine, cached, and preferred to the datasheet.

A measurement above the datasheet is not used: the measurement or the table is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sandbox.contract import Command
from sandbox.errors import SandboxError
from tools.hardware import Device, find_device
from tools.judging.tensors import BadTensorFile, opened
from tools.judging.worker import Setting
from tools.profiler.result import Ceilings
from tools.program_environment import environment

_TIMEOUT_S = 300.0
_MOST_BYTES = 1 << 16
_ABOVE = 1.1  # a measurement may pass the datasheet by so much: clocks differ from card to card


def device_of(environment: Mapping[str, Any]) -> Device | None:
    """The device in the table, from what the guest says of itself; None when it is not in it."""
    arch = str(environment.get("gfx") or "")
    name = str(environment.get("gpu_name") or "")
    return find_device(name, arch or "sm_90", environment.get("compute_units")) if name or arch else None


def ceilings(setting: Setting, environment: Mapping[str, Any], cache: Path | None = None) -> tuple[Ceilings, list[str]]:
    """The ceilings, and notes. `cache` is a folder of the user's; None takes the usual one, or none without a home."""
    kept: Path | None = None
    with contextlib.suppress(RuntimeError):
        kept = (cache or cache_folder()) / f"ceilings-{_key(setting, environment)}.json"
    notes: list[str] = []
    try:
        found = Ceilings.model_validate_json(b"" if kept is None else kept.read_bytes())
    except (OSError, ValidationError):
        found, notes = _measure(setting)
        if kept is not None and found.memory_gbps is not None:
            _keep(found, kept)
    return _with_datasheet(found, device_of(environment), notes), notes


def _keep(found: Ceilings, place: Path) -> None:
    """For the next run: all of it, or nothing where that cannot be written, which costs only time."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=place.parent, ignore_cleanup_errors=True) as making:
            made = Path(making) / place.name
            made.write_text(found.model_dump_json(indent=1) + "\n")
            made.replace(place)


def cache_folder() -> Path:
    """Raises: RuntimeError where nothing says what the home of this user is."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ratchet"


def _key(setting: Setting, environment: Mapping[str, Any]) -> str:
    """Of a device with its software: another version may reach more."""
    names = ("device", "gpu_name", "gfx", "compute_units", "torch", "rocm", "cuda")
    parts = [str(environment.get(name)) for name in names]
    return hashlib.sha256("|".join([*parts, str(setting.threads), os.uname().nodename]).encode()).hexdigest()[:16]


def _measure(setting: Setting) -> tuple[Ceilings, list[str]]:
    home = Path(tempfile.mkdtemp(prefix="ceilings-", dir=setting.scratch))
    command = Command(
        argv=(setting.python, str(setting.guest / "ceilings.py"), str(home / "out.json")),
        cwd=setting.guest,
        role="ceilings",
        env=environment(home, threads=setting.threads),
        readable=(setting.guest,),
        writable=(home,),
        limits=setting.limits,
    )
    try:
        process = setting.sandbox.start(command)
        ended = process.wait(_TIMEOUT_S)
        process.stop()
        with opened(home / "out.json") as told:
            found = json.loads(told.read(_MOST_BYTES))
        return Ceilings.model_validate({**found, "source": "measured"}), []
    except (SandboxError, BadTensorFile, ValidationError, ValueError, TypeError) as error:
        why = "it took too long" if isinstance(error, BadTensorFile) and ended is None else str(error).splitlines()[0]
        return Ceilings(), [f"what the device reaches could not be measured: {why}"]
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _with_datasheet(measured: Ceilings, device: Device | None, notes: list[str]) -> Ceilings:
    """Measured figures where there are any that can be true, the datasheet's for the rest."""
    if device is None:
        return measured
    found = measured.model_copy(update={"peak_tflops": dict(device.peak_tflops) | measured.peak_tflops})
    above = [
        name for name, value in measured.peak_tflops.items() if value > _ABOVE * device.peak_tflops.get(name, math.inf)
    ]
    found.peak_tflops |= {name: device.peak_tflops[name] for name in above}
    if found.memory_gbps is None:
        found.memory_gbps, found.source = device.memory_gbps, f"datasheet of {device.name}"
    elif found.memory_gbps > _ABOVE * device.memory_gbps:
        found.memory_gbps = device.memory_gbps
        above.insert(0, "memory")
    notes += [f"{name} was measured above the datasheet of {device.name}, whose figure is taken" for name in above]
    return found
