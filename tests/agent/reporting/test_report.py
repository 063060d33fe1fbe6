"""A report hangs together, survives its file, and reads well with whatever foreign text it carries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent.reporting import report, report_text
from agent.reporting.report import Attempt, Cost, ModelUse, Step
from agent.step_names import STEPS
from tests.agent.reporting.sample_report import sample

FIRST, *OTHERS = sample().attempts
USE = ModelUse(
    name="m",
    requests=4,
    prompt_tokens=3000,
    completion_tokens=100,
    untold=1,
    guessed_tokens=500,
    dollars=1.25,
    tokens_by_step={"preflight": 600, "write_kernels": 3000},
    dollars_by_step={"preflight": None, "write_kernels": 1.25},
)


def page_with(evidence: dict[str, Any], step: str = "compile_model") -> str:
    """The page of a report whose first attempt has this evidence."""
    return report_text.page(sample(attempts=[FIRST.model_copy(update={"step": step, "evidence": evidence}), *OTHERS]))


def test_the_file_has_what_it_promises_and_is_read_back_with_its_outcome_derived_again(tmp_path: Path) -> None:
    report_text.write(sample(), tmp_path)
    found = json.loads((tmp_path / "report.json").read_text())
    assert set(found["speedup"]) == {"median", "ci_low", "ci_high", "restarts", "noise_floor"}
    assert set(found["baselines"]) == {"eager", "compile", "best"} and len(found["steps"]) == 10
    assert {"kept", "attempts", "environment", "advice", "target", "entry", "date", "command", "version"} <= set(found)
    assert (found["outcome"], found["sandbox"]["containment"]) == ("1 change kept", "uncontained")
    assert report.read(tmp_path) == sample()
    (tmp_path / "report.json").write_text(json.dumps(found | {"outcome": "99 changes kept"}))
    assert report.read(tmp_path).outcome == "1 change kept"


def test_the_page_says_the_outcome_first_then_what_was_not_kept_and_what_the_run_was() -> None:
    page = report_text.page(sample())
    assert page.splitlines()[0] == "# 20260102-030405-abcd: 1 change kept"
    assert page.splitlines()[2] == (
        "**1.32× (1.28 to 1.37) over the unmodified target**, 1.10× (1.06 to 1.14) over the best plain "
        "torch.compile (mode default)."
    )
    assert r"| fuse_projections | fuse \| gate \`and\` up | wrong | row 3 bad |" in page
    assert "| fuse_projections | fuse more | kept, later dropped | faster, at first |" in page
    assert "not measured: it did not compile in time" in page
    assert "**uncontained**" in page and "12.3 ms (12.1 to 12.6), 2,593 tokens/s" in page
    assert "agent run --target 'my repo' --entry bench.py" in page, "it can be typed again"
    assert not any(f"## {title}" in page for title in ("Leave-one-out", "Kernels", "Compiled", "Model"))
    nothing = report_text.page(sample(kept=[], speedup=None, speedup_over_compile=None, branch=None))
    assert nothing.startswith("# 20260102-030405-abcd: nothing kept\n\n3 candidates judged, none proven faster.")
    assert "## Kept" not in nothing


def test_the_page_says_what_each_change_is_worth_on_the_whole_stack() -> None:
    worth = {"worth": {"median": 0.954, "ci_low": 0.936, "ci_high": 0.967, "restarts": 12, "noise_floor": 0.02}}
    asked: Any = {"step": "compose_stack", "title": "Leave out: it", "why": "as it is"}
    weighed = [
        Attempt(id=f"without-{of}", verdict=verdict, evidence=evidence, leaves_out=of, **asked)
        for of, verdict, evidence in (("a3", "kept", worth), ("a1", "slower", worth), ("a2", "refused", {}))
    ]
    page = report_text.page(sample(attempts=[FIRST, *OTHERS, *weighed]))
    assert "| fuse more | 0.95× (0.93 to 0.97) | dropped |" in page
    assert "| fuse q, k and v | 0.95× (0.93 to 0.97) | stays |" in page
    assert "| – | stays: as it is |" in page and "Leave out" not in page


def test_the_page_says_how_kernels_compile_for_other_gpus_and_what_compiling_costs() -> None:
    kernels = {"looked_at": ["k (a.py) on gfx942: 18 registers"], "not_looked_at": ["b.py: `no` launch"]}
    page = page_with({"correctness": {"kernels": kernels}})
    assert rf"| {FIRST.title} | looked at | k (a.py) on gfx942: 18 registers |" in page
    assert r"| not looked at | b.py: \`no\` launch |" in page
    breaks = {"graphs": 3, "graph_breaks": 1, "reasons": ["a `print` | in it"], "first_call_s": 20.0}
    made = {"correctness": {"compiled": breaks | {"recompiles": 2, "recompile_reasons": ["a size"]}}}
    page = page_with({**made, "comparison": {"incumbent_us": [5000.0, 9000.0], "candidate_us": [1000.0, 9000.0]}})
    assert rf"| {FIRST.title} | 3 | 1 break; a \`print\` \| in it | 2 times; a size | 20 s | 5,000 calls |" in page
    assert "| 20 s | never |" in page_with({**made, "comparison": {"incumbent_us": [1.0], "candidate_us": [2.0]}})


def test_the_page_says_why_calls_are_not_recorded() -> None:
    why = "RuntimeError: called a synchronizing CUDA operation (model.py:12)"
    page = page_with({"correctness": {"not_recorded": [f"{why}\n" + 200 * "x"]}})
    assert f"## Not recorded as graphs\n\n| candidate | why |\n| --- | --- |\n| {FIRST.title} | {why}" in page
    assert "xx…" in page and "Not recorded" not in page_with({"correctness": {}})


def test_foreign_text_cannot_become_markup_or_a_column_of_a_table() -> None:
    evil = "<script>alert(1)</script> [x](http://example.org) **bold** \x1b[31m"
    page = report_text.page(sample(advice=[evil], notes=[evil]))
    assert not re.search(r"(?<!\\)(<script|\[x|\*\*bold)", page) and "\x1b" not in page
    for block in page.split("\n\n"):
        rows = [row for row in block.splitlines() if row.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1


def test_what_a_model_took_is_one_sum_with_what_its_steps_took() -> None:
    one = Attempt(
        id="write_kernels-1",
        step="write_kernels",
        title="A loop | at once",
        verdict="kept",
        why="",
        cost=Cost(tokens=2000, dollars=0.75),
    )
    other = one.model_copy(update={"id": "write_kernels-2", "title": "Another", "verdict": "neutral"})
    page = report_text.page(sample(model=USE, attempts=[FIRST, one, other]))
    assert "`m` was asked 4 times: 3,600 tokens, 100 of them answers. That cost 1.25 dollars." in page
    assert "Of 1 request the endpoint did not say what they took: 500 tokens are guessed." in page
    assert "| write_kernels | 3,000 | 1.25 |" in page and "| preflight | 600 | not known |" in page
    assert "1 change of its kept, at 3,600 tokens each." in page
    assert "| of it, for: A loop \\| at once | 2,000 | 0.75 |" in page and "for: Another" not in page
    again = USE.model_copy(update={"name": "a recording", "replayed": True, "dollars": None, "dollars_by_step": {}})
    page = report_text.page(sample(model=again))
    assert "4 answers came from a recording, and took, when it was made: 3,600 tokens" in page and "dollars" not in page


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_text.write(sample(), tmp_path)
    before = (tmp_path / "report.json").read_bytes()

    def fails(descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr("agent.records.atomic_file.os.fsync", fails)
    with pytest.raises(OSError, match="no space"):
        report_text.write(sample(wall_s=1.0), tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": [Step(name=name, status="done") for name in reversed(STEPS)]}, "not the ten in order"),
        ({"steps": []}, "not the ten in order"),
        ({"attempts": []}, "never attempted: a1"),
        ({"kept": [], "speedup": sample().speedup}, "no speedup to report"),
        ({"wall_s": float("nan")}, "finite"),
        (
            {"attempts": [Attempt(id="a1", step="s", title="t", verdict="kept", why="w")] * 2},
            "the same id",
        ),
    ],
)
def test_a_report_that_does_not_hang_together_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        sample(**changes)


def test_a_step_that_did_nothing_must_say_why() -> None:
    with pytest.raises(ValidationError, match="does not say why"):
        Step(name="write_kernels", status="skipped")
