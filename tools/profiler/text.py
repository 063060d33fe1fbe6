"""A profile for a terminal: what a call costs, where the time goes, what that could be at most, and what to do next.

At most 100 columns wide, except for commands, which would be wrong if they were cut. No control character is passed on,
because names of kernels are the target's. What is not known is a dash and never a zero.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TypeVar

from tools.plain_text import one_line, width_of
from tools.profiler.categories import CATEGORIES
from tools.profiler.result import CategoryShare, KernelRow, ModuleRow, Profile

WIDTH = 100
_BAR = 32
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NOISE = ("(anonymous namespace)::", "at::native::", "at::cuda::", "c10::", "std::", "void ")
_UNKNOWN = "–"
_LONGEST = 400  # columns of a sentence
_Row = TypeVar("_Row", KernelRow, ModuleRow)
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")  # of a shell


def render(profile: Profile, *, most_kernels: int = 15, most_modules: int = 8, advice: bool = True) -> str:
    """The whole text; kernels and modules are those with the largest shares, and what is left out is counted.

    `advice`: also what each step could gain, and what to do next.
    """
    sections = [
        _head(profile),
        _cases(profile),
        _categories(profile),
        _kernels(profile, most_kernels),
        _modules(profile, most_modules),
        _steps(profile) if advice else [],
        _bottleneck(profile),
        _listed("What to do", profile.recommendations) if advice else [],
    ]
    blocks = [[_cut(line) for line in lines] for lines in sections]
    if profile.deeper and advice:
        blocks.append(["For a closer look", "", *itertools.chain(*map(_command, profile.deeper))])
    blocks.append([_cut(line) for line in _listed("Notes", profile.notes)])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def short_name(name: str, columns: int) -> str:
    """A kernel's name without its arguments and the namespaces that all have, cut where it says least.

    That is the end of a template's name; of a library's the middle, because its tile is at the end.
    """
    name = one_line(name)
    short = _without_arguments(name)
    for noise in _NOISE:
        short = short.replace(noise, "")
    short = short.strip() or name or "(no name)"
    if width_of(short) <= columns or "<" in short:
        return one_line(short, columns)
    tail = short[len(short) - (columns - 1) // 3 :]
    while width_of(tail) > columns // 2:
        tail = tail[1:]
    return one_line(short, columns - width_of(tail)) + tail


def _without_arguments(name: str) -> str:
    """`f<int>(int, float*)` is `f<int>`; what stands after a space, as in `Memcpy DtoD (Device -> Device)`, stays."""
    if not name.endswith(")"):
        return name
    depth = 0
    for at in range(len(name) - 1, 0, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return name[:at] if name[at - 1] not in " :" else name
    return name


def time(us: float | None) -> str:
    """`1.42 ms`, in the unit that suits it."""
    if us is None or not math.isfinite(us):
        return _UNKNOWN
    for unit, size_us in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if us >= size_us or unit == "µs":
            break
    value = us / size_us
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} {unit}"


def _head(profile: Profile) -> list[str]:
    device = one_line(profile.device) or "unknown device"
    architecture = f" ({one_line(profile.architecture)})" if profile.architecture else ""
    middle = f"mean of {len(profile.cases)} cases" if profile.cases else "median"
    rows = {
        "latency": f"{time(profile.call_us)} per call without the profiler, the {middle}",
        "busy": f"{time(profile.busy_us)} of a call, idle for {_share(profile.idle_share)} of it",
        "launches": f"{_count(profile.launches)} per call; with the profiler {time(profile.span_us)} from the first "
        f"to the last, median gap {time(profile.gap_us)}",
        "at best": _ceilings(profile),
    }
    if (made := profile.made) is not None:
        named = [(f"{name} ", version) for name, version in (("torch", made.torch), ("Triton", made.triton))]
        software = [f"{name}{one_line(version, 40)}" for name, version in [*named, ("", made.platform)] if version]
        when = f"{made.date:%Y-%m-%d %H:%M} {made.date.tzname() or ''}"
        rows["made"] = f"{when} with {', '.join(software) or 'unknown software'}"
    title = f"Profile of {one_line(profile.entry, 48) or '(no entry)'} on {device}{architecture}, "
    title += f"{profile.calls:,} {'call' if profile.calls == 1 else 'calls'}"
    lines = (_wrapped(text, first=f"  {name:<9} ", rest=" " * 12) for name, text in rows.items())
    return [one_line(title, WIDTH), "", *itertools.chain(*lines)]


def _cases(profile: Profile) -> list[str]:
    if not profile.cases:
        return []
    lines = ["Each case by itself", ""]
    for row in profile.cases:
        start = (
            f"  {time(row.call_us):>8}  idle {_share(row.idle_share):>6}  {_count(row.launches):>6} launches  "
            f"{one_line(row.bottleneck, 17):<17}  "
        )
        lines.append(start + one_line(row.name, max(WIDTH - len(start), 20)))
    return lines


def _ceilings(profile: Profile) -> str:
    known = profile.ceilings
    parts = [f"{_number(known.memory_gbps)} GB/s"] if known.memory_gbps is not None else []
    parts += [f"{one_line(dtype, 20)} {_number(peak)} TFLOP/s" for dtype, peak in known.peak_tflops.items()]
    if known.launch_us is not None:
        parts.append(f"one launch every {time(known.launch_us)}")
    if not parts:
        return "not known for this device, so that no kernel has a speed of light"
    source = "measured" if known.source == "measured" else f"source: {one_line(known.source)}"
    return f"{', '.join(parts)} ({source})"


def _categories(profile: Profile) -> list[str]:
    shown = {each.category: each for each in profile.categories}
    shown.setdefault("unclassified", CategoryShare(category="unclassified", time_us=0.0, share=0.0))
    rows = sorted(shown.values(), key=lambda each: (each.category == "unclassified", -_sortable(each.share)))
    width = max(map(len, CATEGORIES))
    lines = (
        f"  {row.category:<{width}}  {_bar(row.share)}  {_share(row.share):>6}  {time(row.time_us):>8}" for row in rows
    )
    return ["Where the device's time goes", "", *lines]


def _kernels(profile: Profile, most: int) -> list[str]:
    if not profile.kernels:
        return ["Kernels", "", "  none were seen"]
    shown, more = _largest(profile.kernels, most)
    cause = max(len("cause"), *(len(kernel.cause) for kernel in shown))
    head = f"{'#':>4} {'share':>6} {'calls':>6} {'mean':>8} {'GB/s':>6} {'TFLOP/s':>7} {'limit':>8} {'cause':<{cause}}"
    lines = [
        "Kernels by their share of the device's time",
        "(limit: how near to the speed of light, of memory or of arithmetic, whichever is nearer)",
        "",
        f"{head} name",
    ]
    for number, kernel in enumerate(shown, start=1):
        limit = _share(kernel.speed_of_light, 0) + {"memory": " mem", "compute": " alu", None: ""}[kernel.bound]
        start = (
            f"{number:>4} {_share(kernel.share):>6} {_count(kernel.calls):>6} {time(kernel.mean_us):>8} "
            f"{_number(kernel.gbps):>6} {_number(kernel.tflops):>7} {limit:>8} "
            f"{kernel.cause:<{cause}} "
        )
        lines.append(start + short_name(kernel.name, max(WIDTH - len(start), 20)))
        if origin := _origin(kernel):
            lines.append(f"{'':>5}{one_line(origin, WIDTH - 5)}")
    return lines + more


def _largest(rows: Sequence[_Row], most: int) -> tuple[list[_Row], list[str]]:
    """The rows with the largest shares, and a line that counts the others."""
    order = sorted(rows, key=lambda row: -_sortable(row.share))
    rest = sum(_sortable(row.share) for row in order[most:])
    more = [f"  and {len(order) - most:,} more, {_share(rest)} of the time together"] if len(order) > most else []
    return order[:most], more


def _origin(kernel: KernelRow) -> str:
    """`aten::addmm in MLP (model.py:45): why`; nothing when nothing of it is known."""
    module = one_line(kernel.module, 40)
    place = f"in {module}" if module else ""
    if kernel.where:
        place = f"{place} ({one_line(kernel.where, 48)})" if place else f"at {one_line(kernel.where, 48)}"
    text = " ".join(part for part in (one_line(kernel.op, 48), place) if part)
    why = one_line(kernel.why)
    return f"{text}: {why}" if text and why else text or why


def _modules(profile: Profile, most: int) -> list[str]:
    if not profile.modules:
        return []
    lines = ["Modules, each without those inside it", ""]
    shown, more = _largest(profile.modules, most)
    for module in shown:
        count = f"{module.instances:,}×" if module.instances else ""
        start = f"  {_share(module.share):>6}  {time(module.time_us):>8}  {count:>6}  "
        where = f"  {one_line(module.where, 48)}" if module.where else ""
        lines.append(start + one_line(module.name, max(WIDTH - len(start) - width_of(where), 20)) + where)
    return lines + more


def _steps(profile: Profile) -> list[str]:
    if not profile.steps:
        return []
    lines = ["What each step could gain at most", ""]
    for step in profile.steps:
        gain = f"{step.speedup:.2f}×" if step.speedup is not None and math.isfinite(step.speedup) else _UNKNOWN
        lines += _wrapped(step.reason, first=f"  {one_line(step.step, 18):<18} {gain:>7}  ", rest=" " * 30)
    return lines


def _bottleneck(profile: Profile) -> list[str]:
    component, kind = one_line(profile.primary_bottleneck_component), one_line(profile.primary_bottleneck_type)
    named = f"{component} ({kind})" if component and kind else component or kind
    return _wrapped(named, first="Primary bottleneck: ", rest=" " * 20) if named else []


def _command(text: str) -> Iterator[str]:
    """Broken between its words only, so that it can still be pasted."""
    clean = one_line(text)
    words = _WORD.findall(clean)
    if " ".join(words) != clean:  # a quote that does not end
        words = [clean]
    line = " "
    for word in words:
        if line.strip() and width_of(f"{line} {word} \\") > WIDTH:
            yield f"{line} \\"
            line = "   "
        line += f" {word}"
    yield line


def _listed(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    return [title, "", *itertools.chain(*(_wrapped(text, first="  - ", rest="    ") for text in texts))]


def _wrapped(text: str, *, first: str, rest: str) -> list[str]:
    short = one_line(text, _LONGEST)
    return textwrap.wrap(short, WIDTH, initial_indent=first, subsequent_indent=rest) or [first.rstrip()]


def _cut(line: str) -> str:
    """For wide characters, which textwrap counts as one column, and for very long numbers."""
    while width_of(line) > WIDTH:
        line = line[: WIDTH - 1 if len(line) > WIDTH else -2] + "…"
    return line


def _bar(share: float | None) -> str:
    eighths = round(8 * _BAR * min(max(_sortable(share), 0.0), 1.0))
    full, part = divmod(eighths, 8)
    return (_EIGHTHS[8] * full + _EIGHTHS[part] * (part > 0)).ljust(_BAR)


def _share(share: float | None, digits: int = 1) -> str:
    return _UNKNOWN if share is None or not math.isfinite(share) else f"{share:.{digits}%}"


def _number(value: float | None) -> str:
    """Three digits of it, or all before the point."""
    if value is None or not math.isfinite(value):
        return _UNKNOWN
    if abs(value) >= 1e6:
        return f"{value:.1e}"
    digits = 0 if abs(value) >= 100 or value == 0 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
    return f"{value:,.{digits}f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e6 and value.is_integer() else _number(value)


def _sortable(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
