"""A call of a tool is answered in words that say what to do; only a fault of ours is raised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import log
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import Field

from tools.judging.accept import speedup_interval
from tools.judging.comparison import Comparison
from tools.registry import LONGEST, Registry, Request, Tool, ToolFault, cut
from tools.registry import judging as judging_tools
from tools.registry import trying as trying_tools
from tools.registry.judging import Tried


class Add(Request):
    """Add numbers.

    All of them.
    """

    numbers: list[int] = Field(max_length=3)
    """What to add."""
    title: str = "sum"


def add(session: Any, request: Add) -> str:
    if session == "broken":
        raise OSError("the disk is gone")
    if 13 in request.numbers:
        raise ToolFault("13 is not added.", "Take 14.")
    total = sum(request.numbers)
    return f"the sum is {total}" + "." * total


REGISTRY = Registry([Tool("add", Add, add)])


def test_a_call_gives_a_result_and_its_text() -> None:
    for arguments in ('{"numbers": [1, 2]}', {"numbers": [1, 2]}):
        answer = REGISTRY.call(None, "add", arguments)
        assert (answer.worked, answer.text) == (True, "the sum is 3...")


def test_what_only_looks_can_be_left_out_and_the_rest_goes_on() -> None:
    both = Registry([Tool("add", Add, add), Tool("look", Add, add, looks_only=True)]).without_looking()
    assert both.call(None, "add", {"numbers": [1]}).worked
    answer = both.call("broken", "look", {"numbers": [1]})
    assert not answer.worked and "replay" in answer.text


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("multiply", "{}", ["There is no tool multiply.", "There are add."]),
        ("add", "{numbers", ["The arguments are no JSON", "Send one JSON object."]),
        ("add", "[]", ["arguments: Input should be", "add takes {"]),
        ("add", '{"numbers": ["a"]}', ["numbers.0: Input should be a valid integer", '"What to add."']),
        ("add", '{"numbers": [1], "more": 2}', ["more: Extra inputs are not permitted"]),
        ("add", f'{{"numbers": [{"9" * 5000}]}}', ["The arguments are no JSON"]),
        ("add", "[" * 100_000, ["The arguments are no JSON"]),
        ("add", '{"numbers": [13]}', ["13 is not added.\nTake 14."]),
    ],
)
def test_what_does_not_work_is_told_with_what_to_do(name: str, arguments: str, told: list[str]) -> None:
    answer = REGISTRY.call(None, name, arguments)
    assert not answer.worked
    assert all(part in answer.text for part in told), answer.text


def test_a_fault_of_ours_is_raised() -> None:
    with pytest.raises(OSError, match="the disk is gone"):
        REGISTRY.call("broken", "add", {"numbers": []})


def test_a_long_answer_is_cut_in_the_middle() -> None:
    text = REGISTRY.call(None, "add", {"numbers": [LONGEST * 2]}).text
    assert text.startswith("the sum is 32000") and text.endswith("...") and "characters left out" in text
    assert len(text) < LONGEST + 100
    assert cut("short") == "short" and "; ask again …]" in cut("x" * 99, 30, "ask again")


def test_a_tool_is_offered_as_chat_completions_takes_it() -> None:
    (told,) = REGISTRY.as_functions()
    assert told["type"] == "function"
    assert told["function"]["name"] == "add" and told["function"]["description"] == "Add numbers. All of them."
    schema = told["function"]["parameters"]
    assert schema["additionalProperties"] is False and schema["required"] == ["numbers"]
    assert schema["properties"]["title"] == {"default": "sum", "type": "string"}, "a field of that name stays"
    assert json.loads(json.dumps(told)) == told


def told(name: str, answer: object, **arguments: Any) -> str:
    """Of a tool of the referee's, where the session's method gives this."""
    session = SimpleNamespace(noise_floor=0.02, measure=lambda: answer, attempts=lambda: answer)
    return Registry(judging_tools.TOOLS).call(session, name, arguments).text


def test_a_measurement_has_its_interval_and_what_cannot_be_shown() -> None:
    row = {"purpose": "quick look", "incumbent": "a", "candidate": "b"}
    times = {"incumbent_us": [[10.0, 40.0]] * 3, "candidate_us": [[5.0, 40.0]] * 3}
    found = Comparison(**row, **times, case_log_ratios=[[log(2), 0.0]] * 3)
    assert told("measure", found) == (
        "1.414x (1.414 to 1.414, 3 restarts) over the top of the stack (case 1: 10.0 us, with your candidate 5.0 us; "
        "case 2: 40.0 us, with your candidate 40.0 us); below 2.0% a gain cannot be shown"
    )
    assert "it cannot be timed: it ended" in told("measure", Comparison(**row, broken="it ended"))


def test_the_ledger_is_shown_from_its_end() -> None:
    speedup = speedup_interval([log(1.1)] * 6, 0.02)
    rows = [Tried(step="s", title=f"t{n}", verdict="kept", reason="good.", speedup=speedup) for n in range(50)]
    rows += [Tried(step="other", title="last", verdict="wrong", reason="it differs.")]
    shown = told("show_ledger", rows)
    assert "11 before these" in shown and shown.endswith("- other: last: wrong. it differs.")
    assert "- s: t49: kept, 1.100x (1.100 to 1.100, 6 restarts). good." in shown
    assert told("show_ledger", rows, step="other").count("\n") == 0


def page(file: str, kernel: str, launch: str, architectures: Sequence[str]) -> str:
    return "\n".join(f"{file} on {name}: line {n:04}" for name in architectures for n in range(1000))


def test_a_long_page_of_machine_code_says_how_to_see_more() -> None:
    session, registry = SimpleNamespace(isa=page), Registry(trying_tools.TOOLS)
    seen, first_line = list[str](), 1
    while first_line:
        said = registry.call(session, "isa", {"file": "k.py", "first_line": first_line}).text
        assert len(said) <= LONGEST
        shown, _, more = said.partition("\n[… ")
        seen += shown.splitlines()
        first_line = int(more.rpartition("isa with first_line=")[2].split()[0]) if more else 0
    assert seen == page("k.py", "", "", ["gfx90a", "gfx942", "gfx950"]).splitlines()
