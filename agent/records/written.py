"""What is written of an attempt: what judging it took, for the ledger, and the message of the commit it becomes."""

from __future__ import annotations

from typing import Any

from agent.config import RunConfig
from agent.records.attempts import Attempt
from tools.candidate import Candidate
from tools.judging.verdict import Verdict


def cost_of(verdict: Verdict, candidate: Candidate) -> dict[str, Any]:
    """What judging took, read off the evidence, and what a model took to come to the candidate."""
    parts = [verdict.evidence.get(name) or {} for name in ("screen", "confirmation", "worth")]
    restarts = sum(int(part.get("restarts", 0)) for part in parts)
    return {
        "wall_s": float(verdict.evidence.get("wall_s", 0.0)),
        "restarts": restarts,
        "tokens": candidate.tokens,
        "dollars": candidate.dollars,
    }


def commit_message(attempt: Attempt, verdict: Verdict | None, config: RunConfig) -> str:
    """What, why, the measured gain with its interval, and how to reproduce it."""
    candidate, below = attempt.candidate, len(attempt.below)
    lines = [candidate.shown, "", candidate.rationale.strip(), ""]
    if verdict is not None and verdict.name == "kept" and verdict.speedup is not None:
        floor = f"noise floor {verdict.speedup.noise_floor:.1%}"
        over = f"what lies below the {below} before it, together with them" if below else "the commit below"
        lines.append(f"Measured: {verdict.speedup} over {over}, {floor}.")
    elif candidate.timed_with:
        lines.append(f"Not measured by itself: timed together with the change of {candidate.timed_with} on top of it.")
    else:
        lines.append("No gain of its own; it makes a later commit possible.")
    lines += ["", f"Step: {candidate.step}", f"Reproduce: agent run --target . --entry {config.entry}"]
    return "\n".join(lines)
