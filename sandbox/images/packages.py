"""Install what a target requires, and leave the PyTorch that is there as it is. Runs inside an image while it is built.

Does not end well when PyTorch or Triton is not what it was before. That holds against mistakes and not against
malice: build scripts of packages run in between, as the same user. Usage: packages.py install | record | check
Standard library only; the files it reads and writes lie beside it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
REQUIRED, PINNED = FOLDER / "requirements.txt", FOLDER / "constraints.txt"  # from the target
INSTALLED, RECORD = FOLDER / "base.txt", FOLDER / "base.json"  # of the base
# These come with a PyTorch and fit only that one: where there is a PyTorch, no requirement has a say in them.
COMES_ALONG = re.compile(r"(torch|triton|pytorch-triton(-.*)?|triton-rocm|amd-triton|nvidia-.*-cu\d+)$")
# These stay as well, where the base has them.
STAYS = re.compile(r"(torchvision|torchaudio|(nvidia|cuda|amd|rocm|hip)-.*|rocm|aiter|apex)$")
NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def main(arguments: list[str]) -> int:
    if arguments == ["record"]:
        record()
    elif arguments == ["check"]:
        check(json.loads(RECORD.read_text()))
    elif arguments == ["install"]:
        before = record()
        install()
        check(before)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


def record() -> dict[str, dict[str, str]]:
    """Write down what of the base has to stay: versions for pip, and the files that tell a PyTorch from another."""
    kept = {name: version for name, version in versions().items() if stays(name)}
    INSTALLED.write_text("".join(f"{name}=={version}\n" for name, version in sorted(kept.items())))
    found = {"versions": kept, "files": fingerprints()}
    RECORD.write_text(json.dumps(found, indent=1) + "\n")
    for name, version in sorted(kept.items()):
        print(f"stays as it is: {name} {version}", flush=True)
    return found


def install() -> None:
    present = versions()
    required, pinned = (kept_lines(path, present) for path in (REQUIRED, PINNED))
    if not any(NAME.match(line) or line.startswith(("-e", "--editable")) for line in required):
        print("nothing is left to install")
        return
    for name, lines in (("install.txt", required), ("pins.txt", pinned)):
        (FOLDER / name).write_text("\n".join(lines) + "\n")
    pip = [sys.executable, "-I", "-m", "pip", "install", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    files = ["--requirement", "install.txt", "--constraint", "pins.txt", "--constraint", INSTALLED.name]
    # Debian's protection of its own Python is not needed in an image.
    settings = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_PROGRESS_BAR": "off"}
    if importlib.util.find_spec("pip") is None:
        raise SystemExit(f"{sys.executable} of the base has no pip")
    status = subprocess.run([*pip, *files], cwd=FOLDER, env={**os.environ, **settings}).returncode
    if status != 0:
        raise SystemExit(f"pip ended with status {status}")


def check(before: dict[str, dict[str, str]]) -> None:
    """Raises: SystemExit when something of the base was replaced or removed."""
    present, files = versions(), fingerprints()
    changed = [
        f"{name} was {version} and is {present.get(name, 'gone')}"
        for name, version in before["versions"].items()
        if present.get(name) != version
    ]
    changed += [
        f"the files of {name} are not those of the base"
        for name, digest in before["files"].items()
        if digest and files[name] != digest
    ]
    if changed:
        raise SystemExit("what was installed replaced what must stay: " + "; ".join(sorted(changed)))


def kept_lines(path: Path, present: dict[str, str]) -> list[str]:
    """The lines of a file without those that would replace what stays; told one by one."""
    kept = []
    for line in path.read_text().splitlines():
        found = NAME.match(line)
        name = normal(found.group(1)) if found else ""
        if name and "torch" in present and (COMES_ALONG.match(name) or (STAYS.match(name) and name in present)):
            if path == REQUIRED:
                why = f"the base's {present[name]} stays" if name in present else "it belongs to another PyTorch"
                print(f"left out: {line.split(' --hash')[0].strip()}: {why}", flush=True)
        else:
            kept.append(line)
    return kept


def stays(name: str) -> bool:
    return bool(COMES_ALONG.match(name) or STAYS.match(name))


def versions() -> dict[str, str]:
    """Of every installed package, by its normal name."""
    found: dict[str, str] = {}
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"]
        if name:
            found.setdefault(normal(name), package.version)
    return found


def fingerprints() -> dict[str, str]:
    """Digests of the files that differ between any two builds; empty where there is none."""
    digests = {}
    for name, inside in (("torch", "version.py"), ("triton", "__init__.py")):
        found = importlib.util.find_spec(name)
        folders = list(found.submodule_search_locations or ()) if found else []
        file = Path(folders[0]) / inside if folders else None
        digests[name] = hashlib.sha256(file.read_bytes()).hexdigest() if file and file.is_file() else ""
    return digests


def normal(name: str) -> str:
    """As the packaging standard compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
