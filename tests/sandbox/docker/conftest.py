"""Places to fetch images and packages from that are on no network but this machine's own."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sandbox.docker.image_check import native_architecture
from tests.local_image import configuration

Serve = Callable[[dict[str, bytes]], tuple[str, list[str]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves contents by path on this machine; returns the address and the paths that are asked for."""
    servers = []

    def start(contents: dict[str, bytes]) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                content = contents.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Type", _type_of(content or b""))
                self.send_header("Docker-Content-Digest", _digest(content or b""))
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content or b"")

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _type_of(content: bytes) -> str:
    if content[:1] == b"{" and b'"mediaType"' in content:
        return str(json.loads(content)["mediaType"])
    return "text/html" if content[:1] == b"<" else "application/octet-stream"


def registry(name: str, layer: bytes) -> dict[str, bytes]:
    """What a registry serves for an image of one layer."""
    config = configuration(layer, native_architecture(), Env=["PATH=/usr/local/bin:/usr/bin:/bin"])
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    layers = [_described(layer, "application/vnd.docker.image.rootfs.diff.tar")]
    of_config = _described(config, "application/vnd.docker.container.image.v1+json")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": of_config, "layers": layers}).encode()
    blobs = {f"/v2/{name}/blobs/{_digest(blob)}": blob for blob in (config, layer)}
    named = {f"/v2/{name}/manifests/{tag}": manifest for tag in ("1", _digest(manifest))}
    return {"/v2/": b"{}", **blobs, **named}


def _described(blob: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "size": len(blob), "digest": _digest(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def package_index(name: str, version: str, requires: str, files: Mapping[str, str] = {}) -> dict[str, bytes]:
    """What an index of packages serves for one package, which requires others and holds further files."""
    info = f"{name}-{version}.dist-info"
    inside = {
        f"{name}.py": f"version = {version!r}\n",
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: {requires}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    inside[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in inside) + f"{info}/RECORD,,\n"
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in inside.items():
            archive.writestr(path, text)
    file = f"{name}-{version}-py3-none-any.whl"
    page = f'<!DOCTYPE html><html><body><a href="/{file}">{file}</a></body></html>'
    return {f"/simple/{name}/": page.encode(), f"/{file}": wheel.getvalue()}
