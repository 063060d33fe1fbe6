"""Whole runs inside the providers that contain: the same result as without, and no secret of ours anywhere.

Everything is real but the clock; see `synthetic_clock.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.records.ledger import Ledger
from agent.reporting import report
from sandbox import choose
from sandbox.choose import Name, Wanted
from sandbox.docker.engine import Engine
from sandbox.errors import SandboxUnavailable
from tests.agent.whole_runs import ROOT, process, run_options
from tests.files import write_files
from tests.relay import Relay
from tests.sandbox.conftest import available

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole runs
TASK = ROOT / "evals" / "tasks" / "kb_mlp" / "bench.py"
CANARY = f"canary-{secrets.token_hex(16)}"
KEPT_FROM_ALL = ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "SOME_PASSWORD")
# the target looks for it wherever a program may look, and does not load when it finds it; a run beside it has another
HUNT = f"""
import glob, hashlib, os, re
SECRET = "{hashlib.sha256(CANARY.encode()).hexdigest()}"
def _hunt():
    yield from (name.encode() + b"=" + value.encode() for name, value in os.environ.items())
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            yield open(path, "rb").read()
        except OSError:
            pass
canaries = (canary for found in _hunt() for canary in re.findall(rb"canary-[0-9a-f]{{32}}", found))
assert not any(hashlib.sha256(canary).hexdigest() == SECRET for canary in canaries), "a secret is in reach"
"""
LEAKY = re.compile(rb"canary-[0-9a-f]{32}")


@dataclass
class Ran:
    provider: str
    run_dir: Path
    said: str
    inspected: set[str] = field(default_factory=set)  # what the engine told of its containers meanwhile

    @property
    def kept(self) -> list[str]:
        return [kept.title for kept in report.read(self.run_dir).kept]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("contained") / "target", {"bench.py": HUNT + TASK.read_text()})


def walk(provider: Name, target: Path, runs: Path) -> Ran:
    if provider != "local":
        available(choose.make(provider, Wanted(sys.executable, runs / "trial")))
    secrets_given = dict.fromkeys(KEPT_FROM_ALL, CANARY if provider != "local" else "")
    started = process("run", *run_options(target, runs, sandbox=provider), **secrets_given)
    with subprocess.Popen(**started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        found = Ran(provider, runs / "one", "")
        over = threading.Event()
        watcher = threading.Thread(target=inspect_containers, args=(found, over))
        watcher.start()
        try:
            eventually((runs / "one").exists)
            carried = Path(f"/proc/{running.pid}/environ").read_bytes()
            assert provider == "local" or LEAKY.search(carried), "the agent itself does not have the secret"
            found.said = running.communicate(timeout=400)[0]
        finally:
            over.set()
            watcher.join()
            running.kill()
    assert running.returncode == 0, found.said
    return found


def eventually(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not claim():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def inspect_containers(found: Ran, over: threading.Event) -> None:
    while found.provider == "docker" and not over.wait(0.3):
        found.inspected.add(inspected())


def inspected(*which: str) -> str:
    """What the engine tells of its containers; empty where there are none."""
    ids = subprocess.run(["docker", "ps", "-aq", *which], capture_output=True, text=True, check=False).stdout.split()
    told = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True, check=False) if ids else None
    return told.stdout if told else ""


@pytest.fixture(scope="module")
def uncontained(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return walk("local", target, tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module", params=["docker", "bwrap"])
def ran(request: pytest.FixtureRequest, target: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return walk(request.param, target, tmp_path_factory.mktemp(request.param))


@pytest.mark.guard("agent secrets")
def test_the_run_comes_out_as_without_containment_and_leaves_nothing_and_no_secret(ran: Ran, uncontained: Ran) -> None:
    assert ran.kept and ran.kept == uncontained.kept
    found = report.read(ran.run_dir).sandbox
    assert (found.provider, found.contained) == (ran.provider, True)
    assert report.read(uncontained.run_dir).sandbox.containment == "uncontained"
    assert truths(ran) == truths(uncontained) == {"float64"}, "a worker that cannot read all it needs gets less"
    assert not (ran.run_dir / "sandbox").exists() and not (ran.run_dir / "work").exists()
    assert str(ran.run_dir) not in (inspected("--filter", "label=ratchet.agent") if ran.provider == "docker" else "")
    files = [path for path in ran.run_dir.rglob("*") if path.is_file()]
    assert {"ledger.jsonl", "report.json", "checkpoint.sqlite", "run.json"} <= {path.name for path in files}
    assert [path for path in files if LEAKY.search(path.read_bytes())] == []
    assert not LEAKY.search(ran.said.encode())
    assert ran.provider != "docker" or any(json.loads(told or "[]") for told in ran.inspected), "no container was seen"
    assert [told for told in ran.inspected if LEAKY.search(told.encode())] == []


def truths(ran: Ran) -> set[str]:
    attempts = report.read(ran.run_dir).attempts
    return {each.evidence["correctness"]["truth"] for each in attempts if "correctness" in each.evidence}


def test_an_engine_that_goes_away_ends_the_run_with_one_message_and_it_can_be_resumed(
    target: Path, uncontained: Ran, tmp_path: Path
) -> None:
    available(choose.make("docker", Wanted(sys.executable, tmp_path / "trial")))
    relay = Relay(tmp_path / "engine.sock", Engine().socket)
    engine = {"DOCKER_HOST": f"unix://{relay.path}"}
    started = process("run", *run_options(target, tmp_path / "runs", "lost", "docker"), **engine)
    run_dir = tmp_path / "runs" / "lost"
    with subprocess.Popen(**started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            eventually(lambda: (run_dir / "ledger.jsonl").exists() and (run_dir / "ledger.jsonl").read_text())
            relay.close()
            _, said = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == SandboxUnavailable.exit_status, said
    assert "Traceback" not in said and "engine" in said and "agent resume" in said
    relay.open()
    subprocess.run(**process("resume", str(run_dir), **engine), check=True, capture_output=True, timeout=400)
    assert Ran("docker", run_dir, "").kept == uncontained.kept
    assert verdicts(run_dir) == verdicts(uncontained.run_dir)
    relay.close()


def verdicts(run_dir: Path) -> list[str]:
    return [row.verdict for row in Ledger.read(run_dir / "ledger.jsonl")]
