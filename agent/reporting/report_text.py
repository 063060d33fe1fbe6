"""The report of a run as a page: the outcome first, then what was kept, what was refused and how to do it again.

Says nothing that `report.json` does not hold. Foreign text (titles, reasons, versions) cannot become markup.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent import unusual
from agent.records.atomic_file import write_atomically
from agent.reporting import wording
from agent.reporting.report import Attempt, Kept, Latency, Report, Step
from tools.judging.accept import SpeedupInterval

WHY_WIDTH = 160  # evidence is one line; all of it is in report.json
_MARKUP = re.compile(r"([\\`*\[\]<>|]|(?<![^\W_])_|_(?![^\W_]))")


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
        _weighed(report),
        _speed(report),
        _time(report),
        _advice(report),
        _steps(report),
        _refused(report),
        _model(report),
        _compiled(report),
        _kernels(report),
        _environment(report),
        _again(report),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(report: Report) -> str:
    lines = [f"# {_plain(report.run_id)}: {report.outcome}", ""]
    if report.speedup is not None:
        over = ""
        if report.speedup_over_compile is not None:
            mode = f" (mode {_plain(report.baselines.best)})" if report.baselines.best else ""
            over = f", {wording.speedup(report.speedup_over_compile)} over the best plain torch.compile{mode}"
        lines.append(f"**{wording.speedup(report.speedup)} over the unmodified target**{over}.")
    elif report.kept:
        lines.append("**The whole stack was not measured**; the gains below are each over what lay under it.")
    else:
        lines.append(f"{wording.count(len(report.attempts), 'candidate')} judged, none proven faster.")
    lines.append("")
    when = f"{report.date:%Y-%m-%d %H:%M %Z}".strip()
    lines.append(
        f"Target {_code(report.target)}, entry {_code(report.entry)}, {when}, "
        f"{wording.duration(report.wall_s)}, Ratchet {_plain(report.version)}."
    )
    if report.branch:
        lines.append(f"The changes are commits on the branch {_code(report.branch)}.")
    elif report.result:
        lines.append(f"The changed files and the patch are in {_code(report.result)}.")
    if not report.sandbox.contained:
        lines.append(f"The target ran **uncontained** (sandbox {_plain(report.sandbox.provider)}).")
    lines += [f"Note: {_plain(note)}" for note in report.notes]
    return "\n".join(lines)


def _kept(report: Report) -> str:
    if not report.kept:
        return ""
    numbers = {kept.attempt: number for number, kept in enumerate(report.kept, start=1)}
    timed_in = {name: numbers[kept.attempt] for kept in report.kept for name in kept.together_with}
    rows = [
        (
            str(number),
            _plain(kept.step),
            _plain(kept.title),
            _gained(kept, numbers, timed_in),
            _code(kept.commit[:10]),
        )
        for number, kept in enumerate(report.kept, start=1)
    ]
    return "## Kept\n\n" + _table(("#", "step", "change", "gain over the stack below", "commit"), rows)


def _gained(kept: Kept, numbers: Mapping[str, int], timed_in: Mapping[str, int]) -> str:
    """With the numbers of those rows whose gain is part of it; of those, the number of the row that has it."""
    if kept.speedup is None:
        return f"with #{timed_in[kept.attempt]}" if kept.attempt in timed_in else "enabler"
    others = ", ".join(f"#{numbers[name]}" for name in kept.together_with)
    return f"{wording.speedup(kept.speedup)}, with {others}" if others else wording.speedup(kept.speedup)


def _model(report: Report) -> str:
    use = report.model
    if use is None:
        return ""
    total = use.prompt_tokens + use.completion_tokens + use.guessed_tokens
    asked = f"{_code(use.name)} was asked {wording.count(use.requests, 'time')}"
    if use.replayed:
        asked = f"{wording.count(use.requests, 'answer')} came from a recording, and took, when it was made"
    text = f"## Model\n\n{asked}: {total:,} tokens, {use.completion_tokens:,} of them answers."
    if not use.replayed:
        text += " What that cost is not known." if use.dollars is None else f" That cost {use.dollars:.2f} dollars."
    kept = [each for each in report.attempts if each.cost.tokens and each.verdict == "kept"]
    if kept:
        text += f" {wording.count(len(kept), 'change')} of its kept, at {total // len(kept):,} tokens each."
    if use.untold:
        text += f" Of {wording.count(use.untold, 'request')} the endpoint did not say what they took: "
        text += f"{use.guessed_tokens:,} tokens are guessed."
    spent = [(step, tokens, use.dollars_by_step.get(step)) for step, tokens in use.tokens_by_step.items()]
    spent += [(f"of it, for: {_plain(each.title)}", each.cost.tokens, each.cost.dollars) for each in kept]
    if not any(dollars for *_, dollars in spent):
        return text + "\n\n" + _table(("step", "tokens"), [(name, f"{tokens:,}") for name, tokens, _ in spent])
    rows = [(name, f"{tokens:,}", _dollars(dollars)) for name, tokens, dollars in spent]
    return text + "\n\n" + _table(("step", "tokens", "dollars"), rows)


def _dollars(spent: float | None) -> str:
    return "not known" if spent is None else f"{spent:.2f}"


def _afresh(report: Report) -> str:
    rows = [
        (
            _plain(each.step),
            _plain(each.title),
            "enabler" if each.then is None else wording.speedup(each.then),
            "" if each.now is None else wording.speedup(each.now),
            each.outcome if each.outcome == "kept" else f"{each.outcome}: {_plain(each.why, WHY_WIDTH)}",
        )
        for each in report.afresh
    ]
    return "" if not rows else "## Judged afresh\n\n" + _table(("step", "change", "then", "now", "outcome"), rows)


def _weighed(report: Report) -> str:
    """Leave-one-out: the stack without a change, against the stack with it."""
    titles = {attempt.id: attempt.title for attempt in report.attempts}
    rows = []
    for attempt in report.attempts:
        if not attempt.leaves_out:
            continue
        worth = attempt.evidence.get("worth", {})
        measured = wording.speedup(SpeedupInterval.model_validate(worth)) if "median" in worth else "–"
        why = f"stays: {_plain(attempt.why, WHY_WIDTH)}"
        outcome = {"kept": "dropped", "slower": "stays"}.get(attempt.verdict, why)
        rows.append((_plain(titles.get(attempt.leaves_out, attempt.title)), measured, outcome))
    return "" if not rows else "## Leave-one-out\n\n" + _table(("change", "worth on the whole stack", "outcome"), rows)


def _speed(report: Report) -> str:
    rows = [("unmodified target", "eager", "", _latency(report.baselines.eager), "1")]
    rows += [
        ("plain torch.compile", _plain(mode), _eager(latency), _latency(latency), _gain(latency))
        for mode, latency in report.baselines.compile.items()
    ]
    if report.final is not None:
        rows.append(("**this run's stack**", "", _eager(report.final), _latency(report.final), _gain(report.final)))
    text = "## Speed\n\n" + _table(("what", "mode", "eager beside it", "latency per call", "over eager"), rows)
    if len(report.workloads) > 1:
        cases = [
            (
                _plain(case.name),
                _latency(case.before),
                _latency(case.after),
                "" if case.speedup is None else wording.speedup(case.speedup),
            )
            for case in report.workloads
        ]
        text += "\n\n" + _table(("workload", "before", "after", "speedup"), cases)
    return text + "\n\n" + "\n".join(_conditions(report))


def _time(report: Report) -> str:
    """By profiles, which say where to look; the speed above was measured without them."""
    rows = [
        (
            each.category,
            wording.latency(each.before_us),
            "" if each.after_us is None else wording.latency(each.after_us),
        )
        for each in report.time
    ]
    return "" if not rows else "## Where the time goes\n\n" + _table(("category", "before", "after"), rows)


def _conditions(report: Report) -> list[str]:
    lines = ["Intervals are exact order statistics over restarts of both workers; all of it is one session."]
    if report.speedup is not None:
        measured = report.speedup
        lines.append(f"{measured.restarts} restarts; differences below {measured.noise_floor:.1%} are noise here.")
    if report.speedup_default_malloc is not None:
        lines.append(f"With the system's malloc settings: {wording.speedup(report.speedup_default_malloc)}.")
    return lines


def _advice(report: Report) -> str:
    return "" if not report.advice else "## For you to do\n\n" + "\n".join(f"- {_plain(one)}" for one in report.advice)


def _steps(report: Report) -> str:
    rows = [
        (str(number), step.name, step.status, _at_most(step), str(step.attempts), str(step.kept), _plain(step.reason))
        for number, step in enumerate(report.steps, start=1)
    ]
    return "## Steps\n\n" + _table(("#", "step", "status", "at most", "tried", "kept", "why"), rows)


def _at_most(step: Step) -> str:
    return "–" if step.at_most is None else f"{step.at_most:.2f}×"


def _refused(report: Report) -> str:
    on_stack = {kept.attempt for kept in report.kept}
    rows = [_attempt(attempt) for attempt in report.attempts if attempt.id not in on_stack and not attempt.leaves_out]
    return "" if not rows else "## Tried and not kept\n\n" + _table(("step", "candidate", "verdict", "evidence"), rows)


def _attempt(attempt: Attempt) -> tuple[str, ...]:
    # A change can be kept by its own step and dropped by the last one, when it no longer earns its place.
    verdict = "kept, later dropped" if attempt.verdict == "kept" else attempt.verdict
    gain = "" if attempt.speedup is None else f"{wording.speedup(attempt.speedup)}; "
    return _plain(attempt.step), _plain(attempt.title), verdict, gain + _plain(attempt.why, WHY_WIDTH)


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
    rows = list[tuple[str, ...]]()
    for attempt in report.attempts:
        made = attempt.evidence.get("correctness", {}).get("compiled")
        if made is None or attempt.step != "compile_model":
            continue
        breaks = "; ".join([wording.count(made["graph_breaks"], "break"), *made["reasons"]])
        again = "; ".join([wording.count(made["recompiles"], "time"), *made["recompile_reasons"]])
        first, saved = made["first_call_s"], _saved_us(attempt)
        back = f"{first * 1e6 / saved:,.0f} calls" if saved > 0 else "never"
        rows.append(
            (
                _plain(attempt.title),
                str(made["graphs"]),
                _plain(breaks, WHY_WIDTH),
                _plain(again, WHY_WIDTH),
                wording.duration(first),
                back,
            )
        )
    if not rows:
        return ""
    return "## Compiled\n\n" + _table(_COMPILED, rows)


def _saved_us(attempt: Attempt) -> float:
    """What a call of the first shape takes less than before; 0 where that was not measured."""
    measured = attempt.evidence.get("confirmation") or attempt.evidence.get("screen") or {}
    before, after = measured.get("incumbent_us") or [0.0], measured.get("candidate_us") or [0.0]
    return float(before[0] - after[0])


def _kernels(report: Report) -> str:
    """Of candidates in Triton: how they compile for the architectures asked for, or why that is not known."""
    rows = list[tuple[str, str, str]]()
    for attempt in report.attempts:
        looked = attempt.evidence.get("correctness", {}).get("kernels", {})
        for kind in ("faults", "looked_at", "not_looked_at"):
            said = [_plain(line, WHY_WIDTH) for line in looked.get(kind, ())]
            rows += [(_plain(attempt.title), kind.replace("_", " "), line) for line in said]
    if not rows:
        return ""
    return "## Kernels, cross-compiled\n\n" + _table(("candidate", "", "what the compiler made of it"), rows)


def _environment(report: Report) -> str:
    host, guest = report.environment.host, report.environment.guest
    lines = [
        f"- {_plain(host.cpu_model)}, {host.cpu_cores} of {host.cpu_cores_online} cores, {_plain(host.os)}, "
        f"kernel {_plain(host.kernel)}"
    ]
    if host.memory_bytes:
        lines[0] += f", {wording.gibibytes(host.memory_bytes)}"
    if host.gpu_driver:
        lines[0] += f", driver {_plain(host.gpu_driver)}"
    if guest is not None:
        known = guest.model_dump(exclude_none=True)
        lines.append("- " + ", ".join(f"{name} {_plain(str(value), 80)}" for name, value in known.items()))
    lines += [f"- {_code(f'{name}={value}')}" for name, value in report.environment.variables.items()]
    for gpu in report.environment.gpus:
        known = gpu.model_dump(exclude_none=True, exclude={"name"})
        lines.append(f"- {_plain(gpu.name)}" + "".join(f", {name} {_plain(str(v), 80)}" for name, v in known.items()))
    lines += [f"- unusual: {_plain(line)}" for line in unusual.of(report.environment)]
    sandbox = report.sandbox
    kept = [name for name, holds in sandbox.promises.items() if holds]
    broken = [name for name, holds in sandbox.promises.items() if not holds]
    promises = f"holds {', '.join(kept) or 'nothing'}; does not hold {', '.join(broken) or 'nothing'}"
    lines.append(f"- sandbox {_plain(sandbox.provider)}, {sandbox.containment}: {_plain(promises)}")
    lines += [f"- {_plain(note)}" for note in sandbox.notes]
    return "## Environment\n\n" + "\n".join(lines)


def _again(report: Report) -> str:
    return "## Again\n\n" + _fence(shlex.join(report.command))


def _latency(latency: Latency) -> str:
    if latency.latency_us is None:
        return f"not measured: {_plain(latency.failed, WHY_WIDTH)}"
    text = wording.latency(latency.latency_us, latency.latency_us_low, latency.latency_us_high)
    return text if latency.tokens_per_s is None else f"{text}, {latency.tokens_per_s:,.0f} tokens/s"


def _eager(latency: Latency) -> str:
    return "" if latency.eager_us is None else wording.latency(latency.eager_us)


def _gain(latency: Latency) -> str:
    about = "" if latency.about is None else f"about {latency.about:.2g}×, by a screen"
    return about if latency.speedup is None else wording.speedup(latency.speedup)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str, width: int = 0) -> str:
    return _MARKUP.sub(r"\\\1", wording.one_line(text, width))


def _code(text: str) -> str:
    """Text as code; a backtick or a pipe in it would end the code or the table's cell."""
    return f"`{wording.one_line(text).replace('`', chr(39)).replace('|', '¦')}`"


def _fence(text: str) -> str:
    return f"```\n{wording.one_line(text).replace('```', chr(39) * 3)}\n```"
