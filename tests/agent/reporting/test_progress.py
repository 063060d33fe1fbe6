"""Progress as a person, a log and a program see it, and what it costs while others are timed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from agent.reporting import progress as p
from agent.reporting.open_progress import JsonLines, PlainLines, open_progress
from agent.reporting.progress_live import MAX_WIDTH, LiveView
from tests.agent.reporting.sample_report import interval
from tests.agent.whole_runs import ROOT, Terminal

GAIN = interval(1.32, 1.28, 1.37)
GREW = p.StackGrew("audit_compute", "hoist the rotary tables", "0123456789abcdef", 1, GAIN)
STORY: tuple[p.Event, ...] = (
    p.RunStarted("run-1", "/repo", "bench.py", "cpu", "/runs/1", ("audit_compute", "write_kernels"), "local", False),
    p.StepStarted("audit_compute"),
    p.CandidateProposed("a1", "audit_compute", "hoist the rotary tables", 1.08),
    p.Judging("candidate a1", "confirmation", 7, 12),
    p.VerdictReached("a1", "hoist the rotary tables", "kept", "faster at the first look", GAIN),
    GREW,
    p.StepEnded("audit_compute", "done", "", 1),
    p.StepStarted("write_kernels"),
    p.StepEnded("write_kernels", "skipped", "Triton cannot run here"),
    p.Answering("a-model", 3200),
    p.Note("the target has uncommitted changes, which are included"),
    p.RunEnded("1 change kept", "/runs/run-1/report.md", "ratchet/run-1", None, GAIN, interval(1.1, 1.06, 1.14)),
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def live(stream: io.StringIO, clock: Clock | None = None) -> LiveView:
    console = Console(file=stream, force_terminal=True, color_system=None, width=200, height=60)
    return LiveView(stream, clock or Clock(), console)


def picture(view: LiveView) -> str:
    canvas = io.StringIO()
    Console(file=canvas, width=200).print(view.picture())
    return canvas.getvalue()


def test_plain_lines_say_what_happened_when_and_json_lines_are_one_object_an_event() -> None:
    out, rows, clock = io.StringIO(), io.StringIO(), Clock()
    with PlainLines(out, clock) as lines, JsonLines(rows) as objects:
        for event in STORY:
            clock.now += 61
            lines.emit(event)
            objects.emit(event)
    text = out.getvalue().splitlines()
    assert "0:01:01  sandbox local: uncontained, the target's code can do what you can do" in text
    assert "0:04:04  judging candidate a1: confirmation, 7 of 12 restarts" in text
    assert "0:05:05  candidate a1 kept, 1.32× (1.28 to 1.37): faster at the first look" in text
    assert "0:09:09  step write_kernels: skipped: Triton cannot run here" in text
    assert text[-1] == "0:12:12  report /runs/run-1/report.md, branch ratchet/run-1"
    told = [json.loads(line) for line in rows.getvalue().splitlines()]
    assert [row["event"] for row in told][:4] == ["run_started", "step_started", "candidate_proposed", "judging"]
    assert told[4]["speedup"] == {"median": 1.32, "ci_low": 1.28, "ci_high": 1.37, "restarts": 12, "noise_floor": 0.02}
    assert told[-1]["branch"] == "ratchet/run-1" and all(row["elapsed_s"] >= 0 for row in told)


def test_the_last_lines_tell_of_each_change_where_the_whole_was_not_measured() -> None:
    rows, ended = io.StringIO(), p.RunEnded("2 changes kept", "r.md", gains=(GAIN, interval(2.0, 1.9, 2.1)))
    said = "2 changes kept, 1.32× (1.28 to 1.37) and 2.00× (1.90 to 2.10) when kept; the whole was not measured"
    assert ended.words() == [said, "report r.md"]
    with JsonLines(rows) as objects:
        objects.emit(ended)
    assert [each["median"] for each in json.loads(rows.getvalue())["gains"]] == [1.32, 2.0]


def test_the_live_view_shows_the_step_the_candidate_the_measurement_and_the_stack() -> None:
    stream, clock = io.StringIO(), Clock()
    threads = threading.active_count()
    with live(stream, clock) as view:
        for event in STORY[:4]:
            clock.now += 1
            view.emit(event)
        shown = stream.getvalue()
        assert "▸  1 audit_compute" in shown and "·  2 write_kernels" in shown
        assert "candidate a1: hoist the rotary tables (predicted 1.08×)" in shown
        assert "judging candidate a1: confirmation, 7 of 12 restarts" in shown
        for event in STORY[4:10]:
            view.emit(event)
        assert "a-model is answering, 3,200 characters" in picture(view) and "0123456789" in picture(view)
        view.emit(STORY[1])
        view.emit(p.StackShrank(GREW.title, GREW.commit, 0, "no longer earns it"))
        assert "answering" not in picture(view) and "0123456789" not in picture(view)
        view.emit(GREW)
        view.emit(STORY[-1])
        assert threading.active_count() == threads, "a thread that redraws would be timed along with a candidate"
    shown = stream.getvalue()
    assert "✓  1 audit_compute" in shown and "stack  1" in shown
    assert shown.rstrip().splitlines()[-1] == "report /runs/run-1/report.md, branch ratchet/run-1"


def test_a_picture_fits_a_hundred_columns_whatever_the_titles() -> None:
    view, long = live(io.StringIO()), "a very long title " * 20
    for event in (*STORY, p.CandidateProposed("a2", "audit_compute", long), p.Judging(long, long)):
        view.emit(event)
    view.emit(p.StackGrew("audit_compute", long, "0123456789abcdef", 2, GAIN))
    assert max(len(line.rstrip()) for line in picture(view).splitlines()) <= MAX_WIDTH


def test_a_measurement_is_drawn_at_most_twice_a_second() -> None:
    stream, clock = io.StringIO(), Clock()
    with live(stream, clock) as view:
        drawn = 0
        for done in range(100):
            clock.now += 0.05
            before = stream.tell()
            view.emit(p.Judging("A/A", "noise floor", done, 100))
            drawn += stream.tell() > before
    assert 5 <= drawn <= 11


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "[bold red]not markup[/]", "two\nlines"])
def test_foreign_text_cannot_write_to_the_terminal(text: str) -> None:
    stream, plain = io.StringIO(), io.StringIO()
    with live(stream) as view, PlainLines(plain) as lines:
        for event in (STORY[0], p.CandidateProposed("a1", "audit_compute", text), p.Note(text)):
            view.emit(event)
            lines.emit(event)
    for shown in (stream.getvalue(), plain.getvalue()):
        assert "\x1b]0" not in shown and "two\nlines" not in shown
        assert "bold" not in text or text in shown


def test_the_view_suits_whoever_is_watching_and_a_log_does_not_load_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_progress(as_json=False, stderr=Terminal()), LiveView)
    assert type(open_progress(as_json=False, stderr=io.StringIO())) is PlainLines
    assert isinstance(open_progress(as_json=True, stderr=Terminal()), JsonLines)
    monkeypatch.setenv("TERM", "dumb")
    assert type(open_progress(as_json=False, stderr=Terminal())) is PlainLines
    code = "import sys; from agent.reporting.open_progress import open_progress; open_progress(as_json=False)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('rich' in sys.modules)"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "False\n"


def test_the_cursor_comes_back_when_a_run_fails() -> None:
    stream = io.StringIO()
    with pytest.raises(ZeroDivisionError), live(stream, Clock()):
        raise ZeroDivisionError
    assert stream.getvalue().rstrip("\n").endswith("\x1b[?25h")
