"""The target's own tests: those that passed before must pass after.

Tests that fail or are flaky without any change do not count. They run in the candidate's process, which could forge
their results: they catch honest mistakes, the referee's own checks catch the others.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from tools.judging.worker import Build, Setting, Worker, WorkerFault

TIME_LIMIT_S = 600.0
LONGEST_ID = 4000  # characters; fifty of them fit into a request
MOST_TESTS = 100_000


class OwnTests(BaseModel):
    """What the pristine target's tests did. `passed` are the ids that count from now on."""

    passed: list[str] = Field(default_factory=list)
    note: str
    """In one line, what is known of them."""


def run_pristine(setting: Setting, pristine: Build) -> OwnTests:
    """Never raises for what tests do: a suite that cannot be run is a note."""
    try:
        told = _run(setting, pristine)
    except WorkerFault as fault:
        said = fault.message.strip().splitlines()
        note = f"The target's own tests could not be run ({said[-1] if said else fault.kind}) and do not count."
        return OwnTests(note=note)
    if told.get("missing"):
        return OwnTests(note="The target's interpreter has no pytest, so its own tests, if any, were not run.")
    passed, failed = _ids(told, "passed"), _ids(told, "failed")
    if not passed and not failed:
        return OwnTests(note="The target has no tests that pytest finds.")
    note = f"{len(passed)} tests of the target pass and must pass after every change"
    return OwnTests(passed=passed, note=f"{note}; {len(failed)} fail already and do not count" if failed else note)


def broken_by(own: OwnTests, setting: Setting, pristine: Build, candidate: Build) -> list[str]:
    """The tests that passed before and do not pass in `candidate`, in two tries, while they still do without it.

    A candidate under which they cannot be run at all breaks all of them.
    """
    missing = _not_passed(own.passed, setting, candidate)
    swaying = set(_not_passed(missing, setting, pristine))
    return _not_passed([name for name in missing if name not in swaying], setting, candidate)


def _not_passed(names: list[str], setting: Setting, build: Build) -> list[str]:
    if not names:
        return []
    try:
        passed = set(_ids(_run(setting, build, only=names if len(names) <= 50 else ()), "passed"))
    except WorkerFault:
        passed = set()
    return [name for name in names if name not in passed]


def _run(setting: Setting, build: Build, only: list[str] | tuple[str, ...] = ()) -> dict[str, Any]:
    with Worker(setting, build, "suite", timeout_s=TIME_LIMIT_S) as worker:
        return worker.ask("run", only=list(only))


def _ids(said: dict[str, Any], name: str) -> list[str]:
    found = said.get(name)
    return [each for each in found if _is_an_id(each)][:MOST_TESTS] if isinstance(found, list) else []


def _is_an_id(said: object) -> bool:
    """What pytest calls a test; one that cannot be sent back, or shown, does not count."""
    return isinstance(said, str) and len(said) <= LONGEST_ID and said.isprintable()
