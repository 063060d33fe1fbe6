"""A key stands for one place, wherever its line has moved: what was tried is known by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.proposers import ProposalRequest
from agent.proposers.playbook import Playbook
from tests.agent.proposed import of_key, request
from tests.observed import Target
from tools.candidate import Key


def tried(asked: ProposalRequest, key: Key) -> ProposalRequest:
    return replace(asked, attempts=(of_key(asked.step, key, "neutral"),))


def keys(asked: ProposalRequest) -> list[Key]:
    return [candidate.key for candidate in Playbook().propose(asked)[0]]


def test_classes_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    target = Target.of_forward(
        tmp_path / "tree",
        "return self.two(self.one(x) + 1)",
        "self.one, self.two = one.Part(), two.Part()",
        before="import one\nimport two",
    )
    layers = "self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)"
    part = Target.of_forward(tmp_path / "part", "return self.q(x) * self.k(x)", layers).text()
    part = part.replace("class Model", "class Part")
    # the second one is not the same code at the same place
    target = target.with_files({"one.py": part, "two.py": part.replace("        return", "\n        return")})
    asked = request(target, "fuse_projections", target.observe())
    both = keys(asked)
    assert sorted(both) == [Key("projections", f"{name}.py:Part", "q,k") for name in ("one", "two")]
    assert keys(tried(asked, both[0])) == both[1:]


def test_a_line_that_has_moved_is_the_same_one(tmp_path: Path) -> None:
    target = Target.of_forward(tmp_path / "tree", "y = torch.zeros(2, 5, 16)\ny.copy_(x)\nreturn y * 2")
    (key,) = keys(request(target, "audit_compute", target.observe()))
    moved = target.with_files({"model.py": f"import re\n{target.text()}"})
    asked = request(moved, "audit_compute", moved.observe())
    assert keys(asked) == [key] and keys(tried(asked, key)) == []
