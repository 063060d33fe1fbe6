"""The guest package as a worker has it, for tests that look at its parts in this process (which has torch)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "sandbox" / "guest"
NAME = "_ratchet_guest"


def module(name: str) -> Any:
    """`_ratchet_guest.<name>`, loaded the way the bootstrap does."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            NAME, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
        )
        assert spec is not None and spec.loader is not None
        sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[NAME])
    return importlib.import_module(f"{NAME}.{name}")
