"""Runtime files of the skill packs, loaded as a target would import them, each time afresh."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

SKILLS = Path(__file__).parents[1] / "skills"
_numbers = itertools.count()


def load(pack: str, name: str) -> Any:
    """A new module object from `skills/<pack>/assets/<name>.py`, with state of its own."""
    unique = f"asset_{name}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(unique, SKILLS / pack / "assets" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module  # pickle and torch.compile find it by its name
    spec.loader.exec_module(module)
    return module
