"""A profile for a terminal: what a call costs, where the time goes, what that could be at most, and what to do next.

No wider than 100 columns, but for a command, which would be wrong if it were cut; and does not pass on a control
character, because names of kernels are the target's. What is not known is a dash and never a zero.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Sequence

from tools.plain_text import one_line, width_of
from tools.profiler.categories import CATEGORIES
from tools.profiler.result import CategoryShare, KernelRow, Made, Profile

WIDTH = 100
_BAR = 32
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NOISE = ("(anonymous namespace)::", "at::native::", "at::cuda::", "c10::", "std::", "void ")
_UNKNOWN = "–"
_LONGEST = 400  # columns of a sentence
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")  # of a shell


def render(profile: Profile, *, most_kernels: int = 15, most_modules: int = 8, advice: bool = True) -> str:
    """The whole text; kernels and modules are those with the largest shares, and what is left out is counted.

    `advice`: also what each step could gain, and what to do next.
    """
    sections = (
        _head(profile),
        _cases(profile),
        _categories(profile),
        _kernels(profile, most_kernels),
        _modules(profile, most_modules),
        _steps(profile) if advice else [],
        _bottleneck(profile, advice),
        _listed("Notes", profile.notes),
    )
    blocks = ["\n".join(_cut(line) for line in lines) for lines in sections if lines]
    if advice:
        blocks.insert(len(blocks) - bool(profile.notes), "\n".join(_commands(profile)))
    return "\n\n".join(block for block in blocks if block) + "\n"


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
    rows = [
        ("latency", f"{time(profile.call_us)} per call without the profiler, the {_middle(profile)}"),
        ("busy", f"{time(profile.busy_us)} of a call, idle for {_share(profile.idle_share)} of it"),
        (
            "launches",
            f"{_count(profile.launches)} per call; with the profiler {time(profile.span_us)} from the first "
            f"to the last, median gap {time(profile.gap_us)}",
        ),
        ("at best", _ceilings(profile)),
    ]
    if profile.made is not None:
        rows.append(("made", _made(profile.made)))
    title = f"Profile of {one_line(profile.entry, 48) or '(no entry)'} on {device}{architecture}, "
    title += f"{profile.calls:,} {'call' if profile.calls == 1 else 'calls'}"
    lines = [one_line(title, WIDTH), ""]
    for name, text in rows:
        lines += _wrapped(text, first=f"  {name:<9} ", rest=" " * 12)
    return lines


def _made(made: Made) -> str:
    software = [
        f"{name} {one_line(version, 40)}"
        for name, version in (("torch", made.torch), ("Triton", made.triton))
        if version
    ]
    software += [one_line(made.platform, 40)] if made.platform else []
    return f"{made.date:%Y-%m-%d %H:%M} {made.date.tzname() or ''} with {', '.join(software) or 'unknown software'}"


def _middle(profile: Profile) -> str:
    return f"mean of {len(profile.cases)} cases" if profile.cases else "median"


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
    peaks = [f"{one_line(dtype, 20)} {_number(peak)} TFLOP/s" for dtype, peak in known.peak_tflops.items()]
    parts = [f"{_number(known.memory_gbps)} GB/s"] if known.memory_gbps is not None else []
    parts += peaks
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
    width = max(len(name) for name in CATEGORIES)
    lines = ["Where the device's time goes", ""]
    for row in rows:
        lines.append(f"  {row.category:<{width}}  {_bar(row.share)}  {_share(row.share):>6}  {time(row.time_us):>8}")
    return lines


def _kernels(profile: Profile, most: int) -> list[str]:
    if not profile.kernels:
        return ["Kernels", "", "  none were seen"]
    order = sorted(profile.kernels, key=lambda kernel: -_sortable(kernel.share))
    shown = order[:most]
    cause = max(len("cause"), *(len(kernel.cause) for kernel in shown))
    head = f"{'#':>4} {'share':>6} {'calls':>6} {'mean':>8} {'GB/s':>6} {'TFLOP/s':>7} {'limit':>8} {'cause':<{cause}}"
    lines = [
        "Kernels by their share of the device's time",
        "(limit: how near to the speed of light, of memory or of arithmetic, whichever is nearer)",
        "",
    ]
    lines.append(f"{head} name")
    for number, kernel in enumerate(shown, start=1):
        start = (
            f"{number:>4} {_share(kernel.share):>6} {_count(kernel.calls):>6} {time(kernel.mean_us):>8} "
            f"{_number(kernel.gbps):>6} {_number(kernel.tflops):>7} {_limit(kernel):>8} "
            f"{kernel.cause:<{cause}} "
        )
        lines.append(start + short_name(kernel.name, max(WIDTH - len(start), 20)))
        origin = _origin(kernel)
        if origin:
            lines.append(f"{'':>5}{one_line(origin, WIDTH - 5)}")
    if len(order) > len(shown):
        rest = sum(_sortable(kernel.share) for kernel in order[most:])
        lines.append(f"  and {len(order) - most:,} more, {_share(rest)} of the time together")
    return lines


def _limit(kernel: KernelRow) -> str:
    """`83% mem`."""
    which = {"memory": " mem", "compute": " alu", None: ""}[kernel.bound]
    return _share(kernel.speed_of_light, 0) + which


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
    order = sorted(profile.modules, key=lambda module: -_sortable(module.share))
    if not order:
        return []
    lines = ["Modules, each without those inside it", ""]
    for module in order[:most]:
        count = f"{module.instances:,}×" if module.instances else ""
        start = f"  {_share(module.share):>6}  {time(module.time_us):>8}  {count:>6}  "
        where = f"  {one_line(module.where, 48)}" if module.where else ""
        lines.append(start + one_line(module.name, max(WIDTH - len(start) - width_of(where), 20)) + where)
    if len(order) > most:
        rest = sum(_sortable(module.share) for module in order[most:])
        lines.append(f"  and {len(order) - most:,} more, {_share(rest)} of the time together")
    return lines


def _steps(profile: Profile) -> list[str]:
    if not profile.steps:
        return []
    lines = ["What each step could gain at most", ""]
    for step in profile.steps:
        gain = f"{step.speedup:.2f}×" if step.speedup is not None and math.isfinite(step.speedup) else _UNKNOWN
        lines += _wrapped(step.reason, first=f"  {one_line(step.step, 18):<18} {gain:>7}  ", rest=" " * 30)
    return lines


def _bottleneck(profile: Profile, advice: bool) -> list[str]:
    component, kind = one_line(profile.primary_bottleneck_component), one_line(profile.primary_bottleneck_type)
    lines = []
    if component or kind:
        named = f"{component} ({kind})" if component and kind else component or kind
        lines += ["", *_wrapped(named, first="Primary bottleneck: ", rest=" " * 20)]
    if profile.recommendations and advice:
        lines += ["", *_listed("What to do", profile.recommendations)]
    return lines[1:]


def _commands(profile: Profile) -> list[str]:
    return ["For a closer look", "", *itertools.chain(*map(_command, profile.deeper))] if profile.deeper else []


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
    """For signs of two columns, of which textwrap knows nothing, and for numbers that nobody expected."""
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
