"""Write `requirements.lock`: the exact version of everything `.venv` holds but torch and what only torch's build needs.

Run it with the oldest supported Python (`make lock PYTHON=python3.11`): a version that installs there installs on the
newer ones, the other way round it may not. Installs nothing; pip resolves as if for an empty environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from set_up import OLDEST_PYTHON, PINNED_TORCH, ROOT

LOCK = ROOT / "requirements.lock"
# Chosen by torch's own pins, and different for each of its builds.
WITH_TORCH = re.compile(r"^(torch|triton|pytorch-triton.*|nvidia-.*|cuda-.*)$")
HEADER = f"""\
# Exact versions, used as constraints by scripts/set_up.py. Made by `make lock`; do not edit.
# Not here: torch ({PINNED_TORCH}, or this machine's own) and the GPU libraries that its build pins itself.
"""


def main() -> int:
    if sys.version_info[:2] != OLDEST_PYTHON:
        print(f"lock: run it with Python {'.'.join(map(str, OLDEST_PYTHON))}, this is {sys.version.split()[0]}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), f"{ROOT}[evals,llm,mcp,skills,dev]", "setuptools", PINNED_TORCH]
        if subprocess.run(command).returncode != 0:
            print("lock: pip could not resolve; requirements.lock is as it was")
            return 1
        LOCK.write_text(HEADER + "".join(f"{line}\n" for line in pins(json.loads(report.read_text()))))
    print(f"lock: wrote {LOCK}")
    return 0


def pins(report: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    """`name==version` for each package of a pip report, without this project and torch."""
    found = [(normal(item["metadata"]["name"]), item["metadata"]["version"]) for item in report["install"]]
    kept = [pin for pin in found if pin[0] != "ratchet-agent" and not WITH_TORCH.match(pin[0])]
    return [f"{name}=={version}" for name, version in sorted(kept)]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
