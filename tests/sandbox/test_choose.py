"""Which provider a run gets, and that nothing runs uncontained unless a person agreed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox import choose
from sandbox.choose import Name, Wanted
from sandbox.contract import Promises
from sandbox.docker import engine
from sandbox.errors import ContainmentNotHeld, SandboxError, SandboxUnavailable

WANTED = Wanted("/usr/bin/python3", Path("/nowhere"))
AGREES, DECLINES = (lambda reasons: True), (lambda reasons: False)


class Provider:
    """Works, or fails the way it was told to."""

    def __init__(self, name: Name, failure: Exception | None) -> None:
        self.name, self.failure = name, failure

    def promises(self) -> Promises:
        if self.failure is not None:
            raise self.failure
        return Promises(self.name != "local", True, True, True, True, True)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[Name, Exception | None]:
    """What is wrong with each provider here; None is nothing."""
    wrong: dict[Name, Exception | None] = {"docker": None, "bwrap": None, "local": None}
    monkeypatch.setattr(choose, "make", lambda name, wanted: Provider(name, wrong[name]))
    return wrong


Machine = dict[Name, Exception | None]


def missing(what: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"there is no {what}", hint=f"Install {what}.")


@pytest.mark.parametrize("wrong", [missing("engine"), engine.failure("create a container", "unknown runtime")])
def test_containers_come_first_and_namespaces_where_they_cannot_be_had(machine: Machine, wrong: SandboxError) -> None:
    assert choose.choose(WANTED, DECLINES).name == "docker"
    machine["docker"] = wrong
    passed_over: dict[Name, SandboxUnavailable] = {}
    assert choose.choose(WANTED, DECLINES, passed_over).name == "bwrap"
    assert {name: reason.message for name, reason in passed_over.items()} == {"docker": wrong.message}
    hint = passed_over["docker"].hint
    assert hint == wrong.hint.replace("; or choose --sandbox bwrap", "") and "--sandbox" not in hint


def test_nothing_contains_only_when_a_person_agreed(machine: Machine) -> None:
    machine.update(docker=missing("engine"), bwrap=missing("bubblewrap"))
    told: list[str] = []

    def agrees(reasons: list[SandboxUnavailable]) -> bool:
        told.extend(reason.message for reason in reasons)
        return True

    assert choose.choose(WANTED, agrees).name == "local"
    assert told == ["there is no engine", "there is no bubblewrap"]
    with pytest.raises(SandboxUnavailable, match="docker: there is no engine; bwrap: there is no bubblewrap") as caught:
        choose.choose(WANTED, DECLINES)
    assert caught.value.hint == (
        "For docker: Install engine. For bwrap: Install bubblewrap. --sandbox local runs it uncontained."
    )


def test_what_was_tried_is_not_offered_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hints are the real ones: of an engine that is not there, and of a bubblewrap that may make no namespaces."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told: list[SandboxUnavailable] = []
    choose.choose(Wanted(sys.executable, tmp_path / "scratch"), lambda reasons: not told.extend(reasons))
    no_engine, no_namespaces = told
    assert "which DOCKER_HOST names" in no_engine.message and "Start it" in no_engine.hint
    assert no_namespaces.message.startswith("namespaces cannot be made here: bwrap: setting up uid map")
    assert all("--sandbox" not in reason.hint and reason.hint.endswith(".") for reason in told)


@pytest.mark.parametrize("broken", ["docker", "bwrap"])
def test_a_provider_that_does_not_hold_what_was_asked_stops_the_run(machine: Machine, broken: Name) -> None:
    machine["docker"] = missing("engine")
    machine[broken] = ContainmentNotHeld("it has network interfaces")
    with pytest.raises(ContainmentNotHeld):
        choose.choose(WANTED, AGREES)


def test_an_image_is_never_given_up_for_no_container_at_all(machine: Machine) -> None:
    machine.update(docker=missing("engine"), bwrap=missing("bubblewrap"))
    with pytest.raises(SandboxUnavailable) as caught:
        choose.choose(Wanted("python3", Path("/nowhere"), image="some/image"), AGREES)
    assert caught.value.hint == "Install engine."  # what has no images is not offered


@pytest.mark.parametrize("name", ["bwrap", "local"])
def test_only_containers_have_images(name: Name) -> None:
    with pytest.raises(SandboxUnavailable, match="has no images"):
        choose.make(name, Wanted("python3", Path("/nowhere"), image="some/image"))
