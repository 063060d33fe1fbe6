"""The container engine of this machine: what is asked of it, through Docker's SDK.

Podman and engines that map user ids are rejected. The only module that imports docker.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import tarfile
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import docker
import docker.credentials.errors
import docker.errors
import requests.exceptions

from sandbox.docker.endpoint import find_socket
from sandbox.docker.watcher import FramedOutput
from sandbox.errors import DiskFull, EngineLost, EngineRefused, SandboxError, SandboxUnavailable
from sandbox.supervision.records import Identity

# An image with nothing in it: what is seen in its containers is what is mounted.
EMPTY_IMAGE = "ratchet/empty:1"
AGENT_LABEL = "ratchet.agent"  # which agent owns a container
_TIMEOUT_S = 120.0
_ENDING_S = 30.0  # a busy engine hears late that a process has ended
_CREATING, _STARTING = "create a container", "start a container"
_MAPS_USERS = frozenset({"name=rootless", "name=userns"})  # user ids differ inside and outside
_BAD = (
    docker.errors.DockerException,
    docker.credentials.errors.StoreError,
    requests.exceptions.RequestException,
)


@dataclass(frozen=True)
class Ran:
    """How a container that was run to its end has ended."""

    status: int | None  # None when it had to be ended
    output: str  # the end of what it printed
    output_bytes: int
    out_of_memory: bool = False


class Engine:
    """An engine that answers, the usual one if no socket is given. Raises from its constructor: SandboxUnavailable."""

    def __init__(self, socket: str | None = None) -> None:
        self.socket = socket or find_socket()
        try:
            self._api = docker.APIClient(base_url=f"unix://{self.socket}", version="auto", timeout=_TIMEOUT_S)
            weakref.finalize(self, self._api.close)
            self.info: dict[str, Any] = self._api.info()
            told: dict[str, Any] = self._api.version()
        except _BAD as error:
            raise SandboxUnavailable(
                f"the container engine at {self.socket} does not answer: {_short(error)}",
                hint="Ask `docker info` whether its daemon is well, or choose --sandbox bwrap.",
            ) from error
        if _is_podman(self.info, told):
            raise SandboxUnavailable(
                f"the engine at {self.socket} is Podman, which answers like Docker and does some things otherwise: "
                "nothing here was tried with it",
                hint="Use Docker's engine (Debian: docker.io), or choose --sandbox bwrap.",
            )
        if mapped := _MAPS_USERS & set(self.info.get("SecurityOptions") or ()):
            how = "it runs without root" if "name=rootless" in mapped else "it maps user ids"
            raise SandboxUnavailable(
                f"containers of the engine at {self.socket} cannot be given folders of yours: {how}",
                hint="Use an engine that runs as root and maps no user ids, or choose --sandbox bwrap.",
            )

    @property
    def version(self) -> str:
        return str(self.info.get("ServerVersion", "unknown"))

    def make_empty_image(self) -> str:
        """The image for containers that show this machine's own software. Raises: SandboxError, DiskFull."""
        if not self.has_image(EMPTY_IMAGE):
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for name in ("proc", "sys", "dev", "tmp", "etc"):
                    folder = tarfile.TarInfo(name)
                    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(folder)
            repository, tag = EMPTY_IMAGE.split(":")
            self._do("make an empty image", self._api.import_image_from_data, archive.getvalue(), repository, tag)
        return EMPTY_IMAGE

    def has_image(self, name: str) -> bool:
        """Raises: SandboxError."""
        return self.image(name) is not None

    def image(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of an image; None when it has none of that name. Raises: SandboxError."""
        try:
            found: dict[str, Any] = self._do("look for an image", self._api.inspect_image, name)
        except _NotThere:
            return None
        return found

    def images(self, label: str) -> list[dict[str, Any]]:
        """Every image with a name that carries this label. Raises: SandboxError."""
        return list(self._do("list images", self._api.images, filters={"label": label, "dangling": False}))

    def remove_image(self, name: str) -> None:
        """Nothing happens if it is gone, or if something is made of it. Raises: SandboxError."""
        with contextlib.suppress(_NotThere, _Conflict):
            self._do("remove an image", self._api.remove_image, name)

    def networks(self) -> frozenset[str]:
        """The names of its networks. Raises: SandboxError."""
        return frozenset(str(each["Name"]) for each in self._do("list networks", self._api.networks))

    def fetching(self, name: str) -> Iterator[dict[str, Any]]:
        """Fetch an image over the network: what the engine tells meanwhile. Raises: SandboxError, DiskFull."""
        repository, tag = docker.utils.parse_repository_tag(name)
        yield from self._events(
            f"fetch the image {name}", self._api.pull, repository, tag or "latest", stream=True, decode=True
        )

    def building(self, context: bytes, network: str, **options: Any) -> Iterator[dict[str, Any]]:
        """Build from a tar with a Dockerfile and what it copies: what the engine tells meanwhile.

        Its steps get this network. Raises: SandboxError, DiskFull.
        """
        yield from self._events(
            "build an image",
            self._api.build,
            fileobj=io.BytesIO(context),
            custom_context=True,
            network_mode=network,
            use_config_proxy=network != "none",
            rm=True,
            forcerm=True,
            decode=True,
            **options,
        )

    def create(self, name: str, image: str, argv: list[str], host: Mapping[str, Any], role: str, **options: Any) -> str:
        """A container of this agent that does not run yet; returns its id. `host` is for `create_host_config`.

        Raises: EngineRefused, SandboxError, DiskFull.
        """
        try:
            config = self._api.create_host_config(**host)
        except _BAD as error:
            raise EngineRefused(f"the engine cannot isolate as is needed: {_short(error)}") from error
        options["labels"] = {AGENT_LABEL: _own_label(), "ratchet.role": role}
        named = {"name": name, "host_config": config, **options}
        return str(self._do(_CREATING, self._api.create_container, image, argv, **named)["Id"])

    def attach(self, container: str) -> int:
        """A descriptor from which stdout and stderr come, in frames; the caller closes it.

        Raises: EngineLost, SandboxError.
        """
        asked = {"stdout": 1, "stderr": 1, "stream": 1}
        stream = self._do("attach to a container", self._api.attach_socket, container, asked)
        connection = stream._sock
        try:
            return os.dup(stream.fileno())
        finally:  # the SDK would leave both to the garbage collector
            stream._response.close()
            connection.close()

    def wait(self, container: str) -> int | None:
        """Its exit status once it has ended; None when it has been removed. Raises: SandboxError."""
        try:
            return int(self._do("wait for a container", self._api.wait, container, timeout=_ENDING_S)["StatusCode"])
        except _NotThere:
            return None

    def start(self, container: str) -> int:
        """Returns its process 1, as the engine sees it; 0 when it has ended already.

        Raises: EngineRefused, SandboxError, DiskFull.
        """
        self._do(_STARTING, self._api.start, container)
        return int(self.inspect(container)["State"]["Pid"])

    def inspect(self, container: str) -> dict[str, Any]:
        """Raises: SandboxError."""
        found: dict[str, Any] = self._do("look at a container", self._api.inspect_container, container)
        return found

    def allow_cpus(self, container: str, cpus: str) -> None:
        """Nothing happens if it has ended: that is told elsewhere. Raises: SandboxError."""
        with contextlib.suppress(_NotThere, _Conflict):
            self._do("move a container to other CPUs", self._api.update_container, container, cpuset_cpus=cpus)

    def remove(self, container: str) -> None:
        """Kill and remove it, with its anonymous volumes; nothing happens if it is gone.

        A busy engine refuses for a while: it is being removed already, or its end was not heard of yet.

        Raises: EngineLost, SandboxError.
        """
        deadline = time.monotonic() + _ENDING_S
        while True:
            try:
                self._do("remove a container", self._api.remove_container, container, force=True, v=True)
            except _NotThere:
                return
            except EngineLost:
                raise
            except SandboxError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def run_once(
        self,
        name: str,
        image: str,
        argv: list[str],
        host: Mapping[str, Any],
        role: str,
        timeout_s: float,
        output_bytes: int,
        **options: Any,
    ) -> Ran:
        """Run a container to its end, or to the end of its time or of what it may print; then remove it.

        Raises: SandboxError, DiskFull.
        """
        made = self.create(name, image, argv, host, role, **options)
        output = None
        try:
            output, deadline = FramedOutput(self.attach(made)), time.monotonic() + timeout_s
            self.start(made)
            while output.descriptor is not None and output.count <= output_bytes:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([output.descriptor], [], [], left)[0]:
                    break
                output.drain()
            if output.descriptor is None:
                with contextlib.suppress(SandboxError):  # it has closed its output and goes on
                    self.wait(made)
            state = self.inspect(made)["State"]
            status = None if state["Running"] else int(state["ExitCode"])
            return Ran(status, output.tail(), output.count, bool(state.get("OOMKilled")))
        finally:
            if output is not None:
                output.close()  # the engine does not remove a container while its output is being read
            self.remove(made)

    def labelled(self) -> list[tuple[str, Mapping[str, str]]]:
        """(id, labels) of every container that an agent has made and that is still there. Raises: SandboxError."""
        found = self._do("list containers", self._api.containers, all=True, filters={"label": AGENT_LABEL})
        return [(str(each["Id"]), dict(each.get("Labels") or {})) for each in found]

    def _do(self, what: str, call: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return call(*arguments, **named)
        except docker.errors.NotFound as error:
            raise _NotThere(f"the engine cannot {what}: {_short(error)}") from error
        except _BAD as error:
            said = _short(error)
            if isinstance(error, docker.errors.APIError) and error.status_code == 409:
                raise _Conflict(f"the engine cannot {what}: {said}") from error
            if isinstance(error, requests.exceptions.ConnectionError):
                raise EngineLost(f"when it was asked to {what}") from error
            raise failure(what, said) from error

    def _events(self, what: str, call: Any, *arguments: Any, **named: Any) -> Iterator[dict[str, Any]]:
        """What the engine tells while it works."""
        stream = self._do(what, call, *arguments, **named)
        with contextlib.closing(stream):
            while (event := self._do(what, next, stream, None)) is not None:
                yield event


def owner_lives(labels: Mapping[str, str]) -> bool:
    """Whether the agent that made a container still runs; True when that cannot be told from here.

    It cannot of an agent of another machine or pid namespace that shares the engine. After another start of the
    machine its containers do not run, and are removed as ours.
    """
    where, _, process = labels.get(AGENT_LABEL, "").partition(":")
    pid, _, ticks = process.partition(":")
    if not (pid.isdigit() and ticks.isdigit()):
        return False
    return where != _pid_namespace() or Identity(pid=int(pid), started_ticks=int(ticks)).alive


def _own_label() -> str:
    mine = Identity.of_living(os.getpid())
    return f"{_pid_namespace()}:{mine.pid}:{mine.started_ticks}"


def _pid_namespace() -> str:
    return f"{os.stat('/proc/self/ns/pid').st_ino}"


def _is_podman(info: Mapping[str, Any], version: Mapping[str, Any]) -> bool:
    """Its own answers say so: with a field that Docker has not, or with the component "Podman Engine"."""
    components = version.get("Components") or ()
    return "BuildahVersion" in info or any("podman" in str(each.get("Name")).lower() for each in components)


def failure(what: str, said: str) -> SandboxError:
    """The error for what the engine says when it cannot do something."""
    if "no space left on device" in said.lower():
        return DiskFull(f"the engine's disk is full: {said}", hint="`docker system df` tells what it holds.")
    kind = EngineRefused if what in (_CREATING, _STARTING) else SandboxError
    return kind(f"the engine cannot {what}: {said}")


class _Conflict(SandboxError):
    """It is being done already."""


class _NotThere(SandboxError):
    """What was named is not there."""


def _short(error: Exception) -> str:
    explanation = getattr(error, "explanation", None)
    text = explanation if isinstance(explanation, str) and explanation else str(error)
    return " ".join(text.split())[:400]
