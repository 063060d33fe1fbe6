"""What one stream computed is waited for by the host, or by other streams alone, and on a CPU by nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests import assets

streams, computing = (assets.load("amd-kernel-optimization", name) for name in ("streams", "computed"))


class Stream:
    """A stand-in that notes what is asked of it."""

    def __init__(self, device: str, name: str, notes: list[str]) -> None:
        self.device, self.name, self.notes = torch.device(device), name, notes

    def record_event(self) -> Any:
        self.notes.append(f"{self.name} recorded")
        return SimpleNamespace(synchronize=lambda: self.notes.append(f"host waits for {self.name}"), of=self.name)

    def wait_event(self, event: Any) -> None:
        self.notes.append(f"{self.name} waits for {event.of}")


def tensor(device: str, notes: list[str]) -> Any:
    on = torch.device(device)
    stays = lambda stream: notes.append(f"a tensor stays for {stream.name}")  # noqa: E731
    return SimpleNamespace(device=on, is_cuda=on.type == "cuda", record_stream=stays)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> dict[torch.device, Stream]:
    """The stream of each device that is the current one."""
    found: dict[torch.device, Stream] = {}
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: found[device])
    return found


def test_the_host_waits_for_the_streams_of_the_tensors(current: dict[torch.device, Stream]) -> None:
    notes: list[str] = []
    for device in ("cuda:0", "cuda:1", "cuda:2"):
        current[torch.device(device)] = Stream(device, device, notes)
    streams.wait_for([tensor(device, notes) for device in ("cuda:1", "cpu", "cuda:0", "cuda:1")])
    assert sorted(notes) == ["cuda:0 recorded", "cuda:1 recorded", "host waits for cuda:0", "host waits for cuda:1"]


def test_only_another_stream_waits(current: dict[torch.device, Stream]) -> None:
    notes: list[str] = []
    device = torch.device("cuda:0")
    current[device] = first = Stream("cuda:0", "first", notes)
    tensors = [tensor("cuda:0", notes), tensor("cpu", notes)]
    computed = computing.Computed(tensors)
    computed.for_here(tensors)
    assert notes == ["first recorded"]
    current[device] = Stream("cuda:0", "second", notes)
    computed.for_here(tensors)
    assert notes[1:] == ["second waits for first", "a tensor stays for second"]
    current[device] = first
    computed.for_here(tensors)
    assert len(notes) == 3


def test_on_a_cpu_nothing_is_asked_for(current: dict[torch.device, Stream]) -> None:
    tensors = [torch.ones(2), torch.ones(2, device="meta")]
    streams.wait_for(tensors)  # where no device has a stream, asking for one would fail
    computing.Computed(tensors).for_here(tensors)
    assert not current


@pytest.mark.gpu
@pytest.mark.parametrize("by_host", [True, False])
def test_on_a_device_nothing_is_read_too_early(by_host: bool) -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        torch.cuda._sleep(100_000_000)
        made = torch.full((1000,), 3.0, device="cuda")
        computed = computing.Computed([made])
        if by_host:
            streams.wait_for([made])
    with torch.cuda.stream(second):
        if not by_host:
            computed.for_here([made])
        found = made.clone()
    second.synchronize()
    assert found.tolist() == [3.0] * 1000
