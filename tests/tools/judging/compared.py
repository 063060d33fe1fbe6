"""A comparison with these log ratios, as if it had been timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.judging.comparison import Comparison


def compared(log_ratios: Sequence[float], **fields: Any) -> Comparison:
    rows = {
        "case_log_ratios": [[each] for each in log_ratios],
        "case_total_log_ratios": [[each] for each in log_ratios],
    }
    return Comparison(**{"purpose": "confirm", "incumbent": "incumbent", "candidate": "candidate", **rows, **fields})
