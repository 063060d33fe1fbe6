"""What of the audit is timed by itself, what with torch.compile, and what after it."""

from __future__ import annotations

from pathlib import Path

from agent.proposers import Platform
from tests.agent.proposed import CPU, GPU, applied, propose
from tests.observed import Target, same_results
from tools.observation import Observation

DECIDES = """positions = torch.arange(x.shape[1], device=x.device)
mask = None if bool((positions.diff() == 1).all()) else positions > 0
x = self.layer(x + positions[:, None])
return x if mask is None else x * mask[:, None]"""
AGAIN = "self.small, self.out = nn.Linear(16, 16), nn.Sequential(*[nn.Linear(16, 16) for _ in range(12)])"
CONSTANT = "(torch.randn(2, 16), torch.randn(2, 16))\n\ndef constants():\n    return (1,)"


def titles(
    target: Target, step: str, seen: Observation, platform: Platform = GPU, *, pays: bool = True
) -> dict[str, str]:
    found = propose(target, step, seen, platform, compile_pays=pays, recording_pays=pays)[0]
    return {candidate.shown: candidate.timed_with for candidate in found}


def test_what_python_waits_for_in_vain_is_decided_once_so_that_calls_can_be_recorded(tmp_path: Path) -> None:
    target = Target.of_forward(tmp_path / "tree", DECIDES)
    seen = target.observe()
    title = "Decide mask and positions of Model once for each shape"
    assert titles(target, "audit_compute", seen)[title] == "compile_model"
    assert titles(target, "audit_compute", seen, pays=False)[title] == ""
    assert titles(target, "audit_compute", seen, CPU)[title] == ""
    assert titles(target, "capture_graph", seen) == {}
    assert not any("record its calls" in each for each in titles(target, "compile_model", seen))
    found = propose(target, "audit_compute", seen, GPU)[0]
    after = applied(target, next(c for c in found if c.title == title))
    assert same_results(target, after)
    seen = after.observe()
    assert title not in titles(after, "audit_compute", seen)
    assert next(iter(titles(after, "compile_model", seen))).endswith("and record its calls as graphs")
    assert [*titles(after, "capture_graph", seen)] == ["Capture whole calls of Model as graphs"]


def test_a_few_kernels_are_remembered_only_after_torch_compile_where_that_pays(tmp_path: Path) -> None:
    body = "return self.out(x + self.small(condition))"
    target = Target.of_forward(tmp_path / "tree", body, AGAIN, arguments="x, condition", inputs=CONSTANT)
    seen = target.observe()
    title = "Remember what small of Model gave"
    for share, at_once in ((0.05, False), (0.2, True)):
        told = seen.model_copy(update={"again": [row.model_copy(update={"share": share}) for row in seen.again]})
        assert (title in titles(target, "audit_compute", told)) is at_once
        assert (f"{title}, on the whole stack" in titles(target, "compose_stack", told)) is not at_once
        assert title in titles(target, "audit_compute", told, CPU)
        assert title in titles(target, "audit_compute", told, pays=False)
