"""What an image of each kind is made from: a Dockerfile, its arguments, and the files it copies.

Refuses arguments that the Dockerfile does not take, and addresses with a password: the engine keeps them for good.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Mapping
from importlib import resources
from typing import Literal, get_args

from sandbox.errors import ImageBuildFailed

Kind = Literal["rocm", "cuda", "cpu"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SCRIPT = "packages.py"
# What an argument may fetch unless it is empty or "no".
_FETCHES = {
    "COMPILER": "a C++ compiler, if the base has none",
    "TORCH": "PyTorch",
    "AITER": "the source of aiter, and what that requires",
}
_MOST_BYTES = 8 << 20
_SECRET = re.compile(r"://[^/\s]*@")


def arguments_of(kind: str) -> dict[str, str]:
    """The arguments of a Dockerfile, with the values they have when none is given."""
    lines = re.findall(r"^ARG (.*)$", _text(f"{kind}.Dockerfile"), re.MULTILINE)
    found = [each.partition("=")[::2] for line in lines for each in line.split()]
    return dict(reversed(found))  # the first value of a name: a later one without only lets it be seen


def arguments(kind: str, base: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """All that a build is given. Raises: ImageBuildFailed for one that the Dockerfile does not take."""
    known = arguments_of(kind)
    for name, value in given.items():
        if name not in known or name == "BASE":
            takes = ", ".join(sorted(set(known) - {"BASE"}))
            raise ImageBuildFailed(
                f"the {kind} image takes no argument {name}", hint=f"It takes {takes}; --base names the base."
            )
        if _SECRET.search(value):
            raise ImageBuildFailed(
                f"{name} has a password or a token in its address, which would stay in the image's history",
                hint="Give an address that needs none.",
            )
    return {**known, **given, "BASE": base or known["BASE"]}


def may_fetch(settled: Mapping[str, str]) -> list[str]:
    """What the steps of a build with these arguments may take from the network, in words."""
    return [what for name, what in _FETCHES.items() if settled.get(name, "no") not in ("", "no")]


def files(kind: str) -> dict[str, bytes]:
    """A Dockerfile and what of ours it copies."""
    text = _text(f"{kind}.Dockerfile")
    found = {"Dockerfile": text.encode()}
    return {**found, _SCRIPT: _text(_SCRIPT).encode()} if _SCRIPT in text else found


def context(files: Mapping[str, bytes]) -> bytes:
    """A tar of exactly these files, the same bytes for the same files. Raises: ImageBuildFailed."""
    if (size := sum(map(len, files.values()))) > _MOST_BYTES:
        raise ImageBuildFailed(f"the files for the build take {size} bytes, more than {_MOST_BYTES}")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def digest(files: Mapping[str, bytes], settled: Mapping[str, str]) -> str:
    """The same for the same files and arguments."""
    return hashlib.sha256(repr((sorted(files.items()), sorted(settled.items()))).encode()).hexdigest()[:12]


def _text(name: str) -> str:
    return resources.files("sandbox.images").joinpath(name).read_text()
