"""A small report with one change kept and two that were not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agent.environment import Environment, Guest, Host
from agent.reporting.report import Attempt, Baselines, Kept, Latency, Report, Sandbox, Step
from agent.step_names import STEPS
from tools.judging.accept import SpeedupInterval


def interval(median: float, low: float, high: float) -> SpeedupInterval:
    return SpeedupInterval(median=median, ci_low=low, ci_high=high, restarts=12, noise_floor=0.02)


def sample(**changes: Any) -> Report:
    gain = interval(1.32, 1.28, 1.37)
    given: dict[str, Any] = {
        "run_id": "20260102-030405-abcd",
        "date": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "command": ["agent", "run", "--target", "my repo", "--entry", "bench.py"],
        "target": "/home/user/my repo",
        "entry": "bench.py",
        "wall_s": 312.0,
        "speedup": gain,
        "speedup_over_compile": interval(1.10, 1.06, 1.14),
        "baselines": Baselines(
            eager=Latency(latency_us=12_340, latency_us_low=12_100, latency_us_high=12_600, tokens_per_s=2593.0),
            compile={
                "default": Latency(latency_us=10_300, speedup=interval(1.2, 1.17, 1.23)),
                "max-autotune": Latency(failed="it did not compile in time"),
            },
            best="default",
        ),
        "final": Latency(latency_us=9_350),
        "steps": [
            Step(name=name, status="done", kept=1, attempts=3)
            if name == "fuse_projections"
            else Step(name=name, status="nothing", reason="nothing of the kind was found")
            for name in STEPS
        ],
        "kept": [
            Kept(
                attempt="a1", step="fuse_projections", title="fuse q, k and v", commit="0123456789abcdef", speedup=gain
            )
        ],
        "attempts": [
            Attempt(id="a1", step="fuse_projections", title="fuse q, k and v", verdict="kept", why="faster"),
            Attempt(id="a2", step="fuse_projections", title="fuse | gate `and` up", verdict="wrong", why="row 3\nbad"),
            Attempt(id="a3", step="fuse_projections", title="fuse more", verdict="kept", why="faster, at first"),
        ],
        "environment": Environment(
            host=Host(
                os="Linux",
                kernel="6.1",
                machine="x86_64",
                cpu_model="A CPU",
                cpu_cores=2,
                cpu_cores_online=2,
                memory_bytes=24 << 30,
                python="3.11.7",
                container=False,
            ),
            guest=Guest(torch="2.13.0+cpu", device="cpu"),
            variables={"OMP_NUM_THREADS": "1"},
        ),
        "sandbox": Sandbox(provider="local", contained=False, promises={"no_network": True, "separate_users": False}),
        "branch": "ratchet/20260102-030405-abcd",
    }
    return Report(**(given | changes))
