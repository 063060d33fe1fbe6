"""What containment costs is measured, stored and told; here of one provider, once."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from evals import containment
from evals.containment import Containment, Restart


@pytest.mark.slow
def test_one_start_and_one_restart_are_measured_and_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert containment.run(tmp_path, providers=("local",), starts=1, restarts=1) == 0
    told = capsys.readouterr().out
    assert "starts: 1 of 1" in told and "restarts: 1 of 1" in told
    (stored,) = tmp_path.rglob("*.json.gz")
    found = Containment.model_validate_json(gzip.decompress(stored.read_bytes()))
    (start,), (restart,) = found.starts, found.restarts
    assert start.provider == restart.provider == "local"
    assert 0 < start.torch_import_s < start.to_first_call_s and start.beyond_import_s > 0 and start.end_s > 0
    assert restart.wall_s > 0 and restart.call_us > 0
    page = found.page()
    assert page in told and "Starting a process (1 each)" in page
    assert [line for line in page.splitlines() if line.startswith("| local")] and "| docker" not in page


def test_a_cost_is_a_ratio_within_the_same_round() -> None:
    """The machine gets twice as slow from round to round; the cost of a provider does not."""
    rounds = [
        Restart(provider=name, wall_s=1.0, call_us=cost * 2**drift)
        for drift in range(6)
        for name, cost in (("local", 1000.0), ("docker", 1500.0))
    ]
    (row,) = (line for line in containment._restarts(rounds) if line.startswith("| docker"))
    assert row.count("1.500") == 3  # the median and both ends of its interval
