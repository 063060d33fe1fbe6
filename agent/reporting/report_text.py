"""The report of a run as a page: the outcome first, then what was kept, what was refused and how to do it again.

Says nothing that `report.json` does not hold. Foreign text (titles, reasons, versions) cannot become markup.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent import unusual
from agent.records import costs
from agent.records.atomic_file import write_atomically
from agent.reporting.report import Kept, Latency, Report
from agent.reporting.wording import count, duration, gibibytes, latency, speedup
from tools.judging.accept import SpeedupInterval
from tools.plain_text import one_line

WHY_WIDTH = 160  # evidence is one line; all of it is in report.json
_MARKUP = re.compile(r"([\\`*\[\]<>|]|(?<![^\W_])_|_(?![^\W_]))")


class _Markup(str):
    """Markdown of ours, which is not escaped."""


def write(report: Report, folder: Path) -> Path:
    """Write `report.md`, then `report.json`, whole or not at all; returns the path of the page. Raises: OSError."""
    page_path = folder / "report.md"
    write_atomically(page_path, page(report))
    # Last: a run counts as finished once this file is there.
    write_atomically(folder / "report.json", report.model_dump_json(indent=2) + "\n")
    return page_path


def page(report: Report) -> str:
    """The whole of `report.md`."""
    sections = (
        _head(report),
        _afresh(report),
        _kept(report),
        _costs(report),
        _weighed(report),
        _speed(report),
        _time(report),
        _section("For you to do", "\n".join(f"- {_plain(one)}" for one in report.advice)),
        _steps(report),
        _refused(report),
        _model(report),
        _compiled(report),
        _not_recorded(report),
        _kernels(report),
        _environment(report),
        _section("Again", f"```\n{one_line(shlex.join(report.command)).replace('```', chr(39) * 3)}\n```"),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(report: Report) -> str:
    lines = [f"# {_plain(report.run_id)}: {report.outcome}", ""]
    if report.speedup is not None:
        over = ""
        if report.speedup_over_compile is not None:
            mode = f" (mode {_plain(report.baselines.best)})" if report.baselines.best else ""
            over = f", {speedup(report.speedup_over_compile)} over the best plain torch.compile{mode}"
        lines.append(f"**{speedup(report.speedup)} over the unmodified target**{over}.")
    elif report.kept:
        lines.append("**The whole stack was not measured**; the gains below are each over what lay under it.")
    else:
        lines.append(f"{count(len(report.attempts), 'candidate')} judged, none proven faster.")
    when = f"{report.date:%Y-%m-%d %H:%M %Z}".strip()
    lines += [
        "",
        f"Target {_code(report.target)}, entry {_code(report.entry)}, {when}, "
        f"{duration(report.wall_s)}, Ratchet {_plain(report.version)}.",
    ]
    if report.branch:
        lines.append(f"The changes are commits on the branch {_code(report.branch)}.")
    elif report.result:
        lines.append(f"The changed files and the patch are in {_code(report.result)}.")
    if not report.sandbox.contained:
        lines.append(f"The target ran **uncontained** (sandbox {_plain(report.sandbox.provider)}).")
    return "\n".join([*lines, *(f"Note: {_plain(note)}" for note in report.notes)])


def _kept(report: Report) -> str:
    numbers = {kept.attempt: number for number, kept in enumerate(report.kept, start=1)}
    timed_in = {name: numbers[kept.attempt] for kept in report.kept for name in kept.together_with}
    rows = [
        (number, kept.step, kept.title, _gained(kept, numbers, timed_in), _code(kept.commit[:10]))
        for number, kept in enumerate(report.kept, start=1)
    ]
    return _section("Kept", _table(("#", "step", "change", "gain over the stack below", "commit"), rows))


def _costs(report: Report) -> str:
    """Beside what lies below each on the stack."""
    evidence = {attempt.id: attempt.evidence for attempt in report.attempts}
    told = [(number, costs.told(evidence.get(kept.attempt, {}))) for number, kept in enumerate(report.kept, start=1)]
    return _section(
        "What they cost", "\n".join(f"- #{number}: {_plain(' '.join(lines))}" for number, lines in told if lines)
    )


def _gained(kept: Kept, numbers: Mapping[str, int], timed_in: Mapping[str, int]) -> str:
    """With the numbers of those rows whose gain is part of it; of those, the number of the row that has it."""
    if kept.speedup is None:
        return f"with #{timed_in[kept.attempt]}" if kept.attempt in timed_in else "enabler"
    others = ", ".join(f"#{numbers[name]}" for name in kept.together_with)
    return f"{speedup(kept.speedup)}, with {others}" if others else speedup(kept.speedup)


def _model(report: Report) -> str:
    use = report.model
    if use is None:
        return ""
    total = use.prompt_tokens + use.completion_tokens + use.guessed_tokens
    asked = f"{_code(use.name)} was asked {count(use.requests, 'time')}"
    if use.replayed:
        asked = f"{count(use.requests, 'answer')} came from a recording, and took, when it was made"
    text = f"{asked}: {total:,} tokens, {use.completion_tokens:,} of them answers."
    if not use.replayed:
        text += " What that cost is not known." if use.dollars is None else f" That cost {use.dollars:.2f} dollars."
    kept = [each for each in report.attempts if each.cost.tokens and each.verdict == "kept"]
    if kept:
        text += f" {count(len(kept), 'change')} of its kept, at {total // len(kept):,} tokens each."
    if use.untold:
        text += f" Of {count(use.untold, 'request')} the endpoint did not say what they took: "
        text += f"{use.guessed_tokens:,} tokens are guessed."
    spent = [(step, tokens, use.dollars_by_step.get(step)) for step, tokens in use.tokens_by_step.items()]
    spent += [(f"of it, for: {each.title}", each.cost.tokens, each.cost.dollars) for each in kept]
    header, rows = ["step", "tokens"], [[name, f"{tokens:,}"] for name, tokens, _ in spent]
    if any(dollars for *_, dollars in spent):
        header.append("dollars")
        for row, (*_, dollars) in zip(rows, spent, strict=True):
            row.append("not known" if dollars is None else f"{dollars:.2f}")
    return _section("Model", "\n\n".join(filter(None, (text, _table(header, rows)))))


def _afresh(report: Report) -> str:
    rows = [
        (
            each.step,
            each.title,
            "enabler" if each.then is None else speedup(each.then),
            "" if each.now is None else speedup(each.now),
            each.outcome if each.outcome == "kept" else f"{each.outcome}: {_short(each.why)}",
        )
        for each in report.afresh
    ]
    return _section("Judged afresh", _table(("step", "change", "then", "now", "outcome"), rows))


def _weighed(report: Report) -> str:
    """Leave-one-out: the stack without a change, against the stack with it."""
    titles = {attempt.id: attempt.title for attempt in report.attempts}
    rows = []
    for attempt in report.attempts:
        if not attempt.leaves_out:
            continue
        worth = attempt.evidence.get("worth", {})
        measured = speedup(SpeedupInterval.model_validate(worth)) if "median" in worth else "–"
        outcome = {"kept": "dropped", "slower": "stays"}.get(attempt.verdict, f"stays: {_short(attempt.why)}")
        rows.append((titles.get(attempt.leaves_out, attempt.title), measured, outcome))
    return _section("Leave-one-out", _table(("change", "worth on the whole stack", "outcome"), rows))


def _speed(report: Report) -> str:
    rows = [("unmodified target", "eager", "", _latency(report.baselines.eager), "1")]
    for mode, found in report.baselines.compile.items():
        rows.append(("plain torch.compile", mode, _eager(found), _latency(found), _gain(found)))
    if (final := report.final) is not None:
        rows.append((_Markup("**this run's stack**"), "", _eager(final), _latency(final), _gain(final)))
    text = _table(("what", "mode", "eager beside it", "latency per call", "over eager"), rows)
    if len(report.workloads) > 1:
        cases = [
            (
                case.name,
                _latency(case.before),
                _latency(case.after),
                "" if case.speedup is None else speedup(case.speedup),
            )
            for case in report.workloads
        ]
        text += "\n\n" + _table(("workload", "before", "after", "speedup"), cases)
    lines = ["Intervals are exact order statistics over restarts of both workers; all of it is one session."]
    if (whole := report.speedup) is not None:
        lines.append(f"{whole.restarts} restarts; differences below {whole.noise_floor:.1%} are noise here.")
    if report.speedup_default_malloc is not None:
        lines.append(f"With the system's malloc settings: {speedup(report.speedup_default_malloc)}.")
    return _section("Speed", "\n\n".join([text, "\n".join(lines)]))


def _time(report: Report) -> str:
    """By profiles, which say where to look; the speed above was measured without them."""
    rows = [
        (each.category, latency(each.before_us), "" if each.after_us is None else latency(each.after_us))
        for each in report.time
    ]
    return _section("Where the time goes", _table(("category", "before", "after"), rows))


def _steps(report: Report) -> str:
    rows = []
    for number, step in enumerate(report.steps, start=1):
        at_most = "–" if step.at_most is None else f"{step.at_most:.2f}×"
        rows.append((number, step.name, step.status, at_most, step.attempts, step.kept, step.reason))
    return _section("Steps", _table(("#", "step", "status", "at most", "tried", "kept", "why"), rows))


def _refused(report: Report) -> str:
    on_stack, rows = {kept.attempt for kept in report.kept}, []
    for attempt in report.attempts:
        if attempt.id in on_stack or attempt.leaves_out:
            continue
        # A change can be kept by its own step and dropped by the last one, when it no longer earns its place.
        verdict = "kept, later dropped" if attempt.verdict == "kept" else attempt.verdict
        gain = "" if attempt.speedup is None else f"{speedup(attempt.speedup)}; "
        rows.append((attempt.step, attempt.title, verdict, gain + _short(attempt.why)))
    return _section("Tried and not kept", _table(("step", "candidate", "verdict", "evidence"), rows))


_COMPILED = (
    "candidate",
    "graphs",
    "graph breaks",
    "compiled again while it was checked",
    "first call",
    "paid for after",
)


def _compiled(report: Report) -> str:
    """Of candidates that compile: into how many graphs, and after how many calls the compiling is paid for."""
    rows = []
    for attempt in report.attempts:
        made = attempt.evidence.get("correctness", {}).get("compiled")
        if made is None or attempt.step != "compile_model":
            continue
        breaks = "; ".join([count(made["graph_breaks"], "break"), *made["reasons"]])
        again = "; ".join([count(made["recompiles"], "time"), *made["recompile_reasons"]])
        saved_s = costs.saved_by_a_call_s(attempt.evidence)
        back = f"{made['first_call_s'] / saved_s:,.0f} calls" if saved_s > 0 else "never"
        first = duration(made["first_call_s"])
        rows.append((attempt.title, made["graphs"], _short(breaks), _short(again), first, back))
    return _section("Compiled", _table(_COMPILED, rows))


def _not_recorded(report: Report) -> str:
    """Of candidates whose calls run as they are, although they are to be recorded: why."""
    told = [(a.title, a.evidence.get("correctness", {}).get("not_recorded", ())) for a in report.attempts]
    rows = [(title, _short(why)) for title, reasons in told for why in reasons]
    return _section("Not recorded as graphs", _table(("candidate", "why"), rows))


def _kernels(report: Report) -> str:
    """Of candidates in Triton: how they compile for the architectures asked for, or why that is not known."""
    rows = []
    for attempt in report.attempts:
        looked = attempt.evidence.get("correctness", {}).get("kernels", {})
        for kind in ("faults", "looked_at", "not_looked_at"):
            rows += [(attempt.title, kind.replace("_", " "), _short(line)) for line in looked.get(kind, ())]
    return _section("Kernels, cross-compiled", _table(("candidate", "", "what the compiler made of it"), rows))


def _environment(report: Report) -> str:
    host, guest, sandbox = report.environment.host, report.environment.guest, report.sandbox
    machine = f"{host.cpu_model}, {host.cpu_cores} of {host.cpu_cores_online} cores, {host.os}, kernel {host.kernel}"
    if host.memory_bytes:
        machine += f", {gibibytes(host.memory_bytes)}"
    if host.gpu_driver:
        machine += f", driver {host.gpu_driver}"
    lines = [_plain(machine)]
    if guest is not None:
        lines.append(", ".join(_known(guest.model_dump(exclude_none=True))))
    lines += [_code(f"{name}={value}") for name, value in report.environment.variables.items()]
    for gpu in report.environment.gpus:
        lines.append(", ".join([_plain(gpu.name), *_known(gpu.model_dump(exclude_none=True, exclude={"name"}))]))
    lines += [f"unusual: {_plain(line)}" for line in unusual.of(report.environment)]
    kept, broken = (", ".join(n for n, holds in sandbox.promises.items() if holds is kind) for kind in (True, False))
    promises = f"holds {kept or 'nothing'}; does not hold {broken or 'nothing'}"
    lines.append(f"sandbox {_plain(sandbox.provider)}, {sandbox.containment}: {_plain(promises)}")
    lines += [_plain(note) for note in sandbox.notes]
    return _section("Environment", "\n".join(f"- {line}" for line in lines))


def _known(facts: Mapping[str, object]) -> list[str]:
    return [f"{name} {_plain(str(value), 80)}" for name, value in facts.items()]


def _latency(found: Latency) -> str:
    if found.latency_us is None:
        return f"not measured: {_short(found.failed)}"
    text = latency(found.latency_us, found.latency_us_low, found.latency_us_high)
    return text if found.tokens_per_s is None else f"{text}, {found.tokens_per_s:,.0f} tokens/s"


def _eager(found: Latency) -> str:
    return "" if found.eager_us is None else latency(found.eager_us)


def _gain(found: Latency) -> str:
    about = "" if found.about is None else f"about {found.about:.2g}×, by a screen"
    return about if found.speedup is None else speedup(found.speedup)


def _section(title: str, text: str) -> str:
    """Empty where there is nothing in it."""
    return f"## {title}\n\n{text}" if text else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells are escaped, but for `_Markup`; empty without rows."""
    lines = [[cell if isinstance(cell, _Markup) else _plain(str(cell)) for cell in row] for row in rows]
    marked = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in marked) if lines else ""


def _short(text: str) -> str:
    return one_line(text, WHY_WIDTH)


def _plain(text: str, width: int = 0) -> str:
    return _MARKUP.sub(r"\\\1", one_line(text, width))


def _code(text: str) -> _Markup:
    """Text as code; a backtick or a pipe in it would end the code or the table's cell."""
    return _Markup(f"`{one_line(text).replace('`', chr(39)).replace('|', '¦')}`")
