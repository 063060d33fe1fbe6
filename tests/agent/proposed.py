"""What the playbook is asked in tests, and what its answers make of a target."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from agent.proposers import PastAttempt, Platform, ProposalRequest
from agent.proposers.playbook import Playbook
from tests.observed import Target
from tools.candidate import Candidate, Key, Role
from tools.diff.patch import AppliedPatch, PatchRules, plan_patch, tree_reader
from tools.observation import Observation

TASKS = Path(__file__).parents[2] / "evals" / "tasks"
CPU = Platform(device="cpu")
GPU = Platform(device="cuda", triton=True)
ROCM = Platform(device="cuda", rocm=True)


def copy_of(tmp_path: Path, name: str) -> Target:
    tree = tmp_path / name
    shutil.copytree(TASKS / name, tree, ignore=shutil.ignore_patterns("__pycache__"))
    return Target(tree)


def request(
    target: Target,
    step: str,
    seen: Observation,
    platform: Platform = CPU,
    attempts: tuple[PastAttempt, ...] = (),
    protected: bool = True,
    cases: int = 1,
    **more: Any,
) -> ProposalRequest:
    """`more` are further fields."""
    return ProposalRequest(
        step, target.tree, target.tree, "bench.py", protected, seen, platform, attempts, [{}] * cases, **more
    )


def propose(*asked: Any, **fields: Any) -> tuple[list[Candidate], str]:
    """What the playbook answers to a `request`."""
    return Playbook().propose(request(*asked, **fields))


def applied(target: Target, candidate: Candidate) -> Target:
    found = plan_patch(candidate.diff, tree_reader(target.tree), PatchRules())
    assert isinstance(found, AppliedPatch), found
    files = {path: state.data.decode() for path, state in found.files.items() if state is not None}
    return target.with_files(files)


def attempt(candidate: Candidate, verdict: str) -> PastAttempt:
    return PastAttempt(candidate.step, candidate.title, verdict, "", candidate.digest, candidate.key, candidate.role)


def of_key(step: str, key: Key, verdict: str, role: Role = "first") -> PastAttempt:
    """An attempt of which nothing counts but what it changed, and what became of it."""
    return PastAttempt(step, "", verdict, "", "", key, role)
