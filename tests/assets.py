"""Runtime files of the skill packs, loaded as a target would import them, each time afresh."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SKILLS = Path(__file__).parents[1] / "skills"
_numbers = itertools.count()


def load(pack: str, name: str) -> Any:
    """A new module object from `skills/<pack>/assets/<name>.py`, in a package of its own, with state of its own."""
    package = f"assets_{next(_numbers)}"
    sys.modules[package] = ModuleType(package)  # pickle and torch.compile find what is in it by its name
    sys.modules[package].__path__ = [str(SKILLS / pack / "assets")]
    return importlib.import_module(f"{package}.{name}")


def beside(asset: Any, name: str) -> Any:
    """Another module of the same pack, in the package that `asset` was loaded into: they share their state."""
    return importlib.import_module(f"{asset.__package__}.{name}")
