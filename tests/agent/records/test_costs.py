"""What a kept change costs is told from what was measured, and nothing is told of what was not."""

from __future__ import annotations

from agent.records import costs


def test_costs_are_told_in_sentences() -> None:
    used = {
        "costs": {"start_cpu_s": [1.9, 6.25], "host_bytes": [512 << 20, 730 << 20], "device_bytes": [1 << 30, 2 << 30]},
        "slower_sizes": {"(rows=3)": 1.46},
    }
    evidence = {
        "correctness": {"compiled": {"first_call_s": 9.0}, "preferences": ["torch.backends.cudnn.benchmark to True"]},
        "comparison": {"incumbent_us": [5000.0], "candidate_us": [2000.0], "long_use": used},
    }
    assert costs.told(evidence) == [
        "Costs: starting takes 6.2 s of CPU time, not 1.9; at most 730 MiB of host memory, not 512; "
        "at most 2,048 MiB of device memory, not 1,024; a first call of 9.0 s, paid for after 3,000.",
        "Slower for sizes that are not declared: (rows=3) 1.46 times as long.",
        "Sets for all of the process: torch.backends.cudnn.benchmark to True.",
    ]


def test_what_was_not_measured_is_not_told() -> None:
    assert costs.told({}) == [] == costs.told({"comparison": {"incumbent_us": [5000.0]}, "correctness": {}})
    never = {"correctness": {"compiled": {"first_call_s": 9.0}}, "comparison": {"long_use": {"costs": {}}}}
    assert costs.told(never) == ["Costs: a first call of 9.0 s."]
