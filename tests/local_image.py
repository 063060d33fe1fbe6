"""Images made of this machine's own Python, shell and libraries: small, and without any network."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import docker
import pytest

from sandbox.docker.engine import Engine
from sandbox.errors import SandboxUnavailable

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"usr/local/lib/python{VERSION}/site-packages"
TORCH = "2.13.0+test"
_PROGRAMS = {"bin/sh": "dash", "usr/bin/env": "env", "bin/mkdir": "mkdir", "bin/cat": "cat", "usr/bin/id": "id"}
_NOT_NEEDED = re.compile(
    r"(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|distutils|pydoc_data|site-packages|config-.*|unittest"
    r"|lib-dynload/_(test|codecs_|xx|tkinter|sqlite3|curses).*|.*__pycache__)(/|$)"
)


class Images:
    """Images for one test session, removed after it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._client = docker.APIClient(base_url=f"unix://{engine.socket}", version="auto", timeout=120)
        self._prefix = f"ratchet-test/{os.getpid()}-{secrets.token_hex(4)}"
        self.made: list[str] = []

    def name(self, tag: str) -> str:
        """For an image that a test makes; another one each time."""
        self.made.append(f"{self._prefix}:{tag}-{len(self.made)}")
        return self.made[-1]

    @cached_property
    def bare(self) -> str:
        """A Python, a shell, and next to nothing else."""
        return self.of_files("bare", {})

    @cached_property
    def with_torch(self) -> str:
        """The same with pip, and a package that calls itself PyTorch."""
        return self.of_files("torch", {**_pip(), **package("torch", TORCH)})

    def of_files(self, tag: str, files: Mapping[str, bytes], *changes: str, python: bool = True) -> str:
        """An image of one layer: a shell, a Python unless it is not wanted, and these files."""
        name = self.name(tag)
        root = _tar({**_root(python=python), **files})
        self._client.import_image_from_data(root, *name.split(":"), changes=list(changes))
        return name

    def of_another_machine(self) -> str:
        """An empty image that says it was made for a processor that this machine has not."""
        other = "arm64" if os.uname().machine == "x86_64" else "amd64"
        name, layer = self.name("other"), _tar({"hello": b"hello\n"})
        manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
        files = {"manifest.json": manifest, "config.json": configuration(layer, other), "layer.tar": layer}
        self._client.load_image(io.BytesIO(_tar(files)))  # what `docker save` writes
        return name

    def config(self, name: str) -> dict[str, Any]:
        return dict(self._client.inspect_image(name)["Config"])

    def labels(self, name: str) -> dict[str, str]:
        return self.config(name)["Labels"] or {}

    def layer(self) -> bytes:
        """The files of an image with a shell, as a registry keeps them."""
        return _tar(_root(python=False))

    def files(self, name: str) -> Iterator[tuple[str, bytes]]:
        """Every file of an image, with its content."""
        made = self._client.create_container(name, ["/nothing"])["Id"]
        try:
            stream = b"".join(self._client.export(made))
        finally:
            self._client.remove_container(made, force=True, v=True)
        with tarfile.open(fileobj=io.BytesIO(stream)) as tar:
            for entry in tar:
                if entry.isreg() and (file := tar.extractfile(entry)) is not None:
                    yield entry.name, file.read()

    def containers_of(self, name: str) -> list[str]:
        return [str(each["Id"]) for each in self._client.containers(all=True, filters={"ancestor": name})]

    def close(self) -> None:
        """Remove what was made, and what the engine has kept of builds on it."""
        made = {self._client.inspect_image(name)["Id"] for name in self.made if self.engine.has_image(name)}
        below = {str(each["Id"]): str(each["ParentId"]) for each in self._client.images(all=True)}
        while more := {image for image, parent in below.items() if parent in made} - made:
            made |= more
        for name in reversed(self.made):
            self._remove(name)
        while removed := [image for image in made if self._remove(image)]:
            made -= set(removed)
        self._client.close()

    def _remove(self, image: str) -> bool:
        try:
            self._client.remove_image(image)
        except docker.errors.APIError:  # it is gone, or others are made of it
            return False
        return True


def engine_here() -> Engine:
    """Skips where there is none, unless this machine is said to have one."""
    try:
        return Engine()
    except SandboxUnavailable as error:
        if os.environ.get("RATCHET_REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(f"there is no container engine here: {error}")


def package(name: str, version: str, **files: str) -> dict[str, bytes]:
    """An installed package, as pip leaves it."""
    info = f"{PACKAGES}/{name}-{version}.dist-info"
    return {
        f"{PACKAGES}/{name}/__init__.py": f"__version__ = {version!r}\n".encode(),
        f"{PACKAGES}/{name}/version.py": f"build = {version!r}\n".encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/RECORD": f"{name}/__init__.py,,\n{name}-{version}.dist-info/RECORD,,\n".encode(),
        f"{info}/INSTALLER": b"pip\n",
    }


def configuration(layer: bytes, architecture: str, **config: Any) -> bytes:
    """Of an image of one layer, as engines and registries keep it."""
    root = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    return json.dumps({"architecture": architecture, "os": "linux", "config": config, "rootfs": root}).encode()


def _tar(files: Mapping[str, bytes | None]) -> bytes:
    """An archive; None is a folder. Programs and libraries may be run."""
    folders = {parent.as_posix() for path in files for parent in Path(path).parents} - {"."}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        # the engine would make folders that are not named closed to other users
        for path in sorted({*folders, *(path for path, content in files.items() if content is None)}):
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            tar.addfile(entry)
        for path, content in files.items():
            if content is not None:
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


@cache
def _root(*, python: bool) -> dict[str, bytes | None]:
    """The files of a machine with a shell, and a Python."""
    programs = {place: Path(shutil.which(program) or "") for place, program in _PROGRAMS.items()}
    library = dict(_library()) if python else {}
    if python:
        programs["usr/local/bin/python3"] = Path(sys.executable).resolve()
    binaries = [*programs.values(), *(path for path in library.values() if path.suffix == ".so")]
    needed = {found for binary in binaries for found in _libraries(binary)}
    files = {**programs, **library, **{found.lstrip("/"): Path(found) for found in needed}}
    return {
        **dict.fromkeys(("tmp", "proc", "sys", "dev", "etc")),
        **{place: _content(path) for place, path in files.items()},
    }


def _content(path: Path) -> bytes:
    """Without what only a debugger reads: engines that copy whole images are slow enough."""
    if path.suffix == ".so" or ".so." in path.name:
        with tempfile.NamedTemporaryFile() as small:
            if subprocess.run(["strip", "--strip-unneeded", "-o", small.name, str(path)]).returncode == 0:
                return Path(small.name).read_bytes()
    return path.read_bytes()


def _library() -> Iterator[tuple[str, Path]]:
    """Python's own modules."""
    standard = Path(sysconfig.get_path("stdlib"))
    for folder, folders, names in os.walk(standard):
        inside = Path(folder).relative_to(standard)
        folders[:] = [name for name in folders if not _NOT_NEEDED.match(f"{inside / name}/")]
        for name in names:
            if not _NOT_NEEDED.match(f"{inside / name}"):
                yield f"usr/local/lib/python{VERSION}/{inside / name}", Path(folder, name)


def _pip() -> dict[str, bytes]:
    installed = Path(sysconfig.get_path("purelib"))
    paths = [path for pattern in ("pip/**/*", "pip-*.dist-info/*") for path in installed.glob(pattern)]
    return {
        f"{PACKAGES}/{path.relative_to(installed)}": path.read_bytes()
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts
    }


def _libraries(program: Path) -> list[str]:
    told = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
    return re.findall(r"(?:=> )?(/\S+) \(0x", told)
