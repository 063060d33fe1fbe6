"""Turn a rewrite into a candidate, and remember in one line why it was not possible.

Does not propose again, in the same step, what was tried there and not kept: `compose_stack` does that on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent.proposers import ProposalRequest
from tools.candidate import Candidate, Key, Role, Site
from tools.diff.patch import make_diff
from tools.rewrite import CannotRewrite, overlay
from tools.rewrite.reading.source import one_edit

Answer = tuple[list[Candidate], str]
WORTH_TIMING = 1.5  # times the noise floor: what cannot save that much of a call is not timed by itself
MOST_CODE = 60  # characters of a line that is quoted


@dataclass(frozen=True)
class Small:
    """A candidate of which the profile says that noise would hide it."""

    candidate: Candidate
    at_stake: float
    rewrite: Callable[[], dict[str, str]]


@dataclass
class Drafts:
    """Candidates of one step, and the reasons against the others."""

    request: ProposalRequest
    step: str
    candidates: list[Candidate] = field(default_factory=list)
    small: list[Small] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    tried: bool = False

    def add(
        self,
        site: Site,
        rewriter: str,
        title: str,
        rationale: str,
        rewrite: Callable[[], dict[str, str]],
        *,
        variant: str = "",
        gain: float | None = None,
        enables: str = "",
        at_stake: float = 1.0,
    ) -> None:
        """A candidate from what `rewrite()` returns; its `CannotRewrite` becomes a reason.

        `at_stake` is the share of a call that it may save at most, where the profile tells.
        """
        key = key_of(rewriter, site, variant)
        if why := self.out_of_reach(site):
            self.reasons.append(why)
            return
        if self.was_tried(key):
            self.tried = True
            return
        try:
            diff = make_diff(self.request.base, _with_runtime(rewrite()))
        except CannotRewrite as reason:
            self.reasons.append(f"{title}: {reason}")
            return
        if not diff:
            return
        made = Candidate(
            step=self.step,
            title=title,
            rationale=rationale,
            diff=diff,
            key=key,
            predicted_gain=gain,
            enables=enables,
        )
        if at_stake < WORTH_TIMING * self.request.floor:
            self.small.append(Small(made, at_stake, rewrite))
        else:
            self.candidates.append(made)

    def finished(self) -> list[Candidate]:
        """The candidates; what is too small to be timed by itself is one of them, where together it is not."""
        small, self.small = self.small, []
        saved, key = sum(each.at_stake for each in small), Key("together", self.step, "")
        if small and saved < WORTH_TIMING * self.request.floor:
            names = listed([each.candidate.title for each in small])
            self.reasons.append(f"{names}: at most {percent(saved)}, under the noise floor")
        elif small and not self.was_tried(key):
            changed = dict[str, str]()
            with one_edit():
                for each in small:
                    changed |= each.rewrite()
            self.candidates.append(
                Candidate(
                    step=self.step,
                    title=f"{len(small)} small changes together",
                    rationale=" ".join(each.candidate.rationale for each in small),
                    diff=make_diff(self.request.base, _with_runtime(changed)),
                    key=key,
                    predicted_gain=gain_without(saved),
                )
            )
        return self.candidates

    def subject(self, site: Site) -> str:
        """The class or function of a site, with its file where another class of the model has that name."""
        name = site.module_class or site.detail.get("function") or site.file
        files = {row.file for row in self.request.observation.classes if row.name == site.module_class}
        return f"{name} of {site.file}" if len(files) > 1 else str(name)

    def code(self, site: Site) -> str:
        """The text of a site's line: its number changes with every line that is added above it."""
        try:
            lines = (self.request.tree / site.file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        text = lines[site.line - 1].strip() if site.line <= len(lines) else ""
        return f"{text[:MOST_CODE]}{'…' if len(text) > MOST_CODE else ''}"

    def out_of_reach(self, site: Site) -> str:
        """Why the file of a site may not be changed, empty when it may."""
        if site.third_party:
            return f"{site.module_class or site.file} is library code of which no copy can be made ({short(site.file)})"
        if self.request.entry_is_protected and site.file == self.request.entry:
            return f"{site.module_class or site.file} is written in the entry, which stays as it is"
        return ""

    def was_tried(self, key: Key, *verdicts: str, role: Role = "first") -> bool:
        """Whether this step tried a candidate with this key, and it ended so (in any way when none is named)."""
        mine = [a for a in self.request.attempts if (a.step, a.key, a.role) == (self.step, key, role)]
        return any(not verdicts or a.verdict in verdicts for a in mine)

    def answer(self, nothing: str) -> Answer:
        """The candidates, or why there are none: the reasons against what was found, else `nothing`."""
        if self.finished():
            return self.candidates, ""
        if self.tried:
            nothing = "everything that was found has been tried"
        return [], "; ".join(dict.fromkeys(self.reasons)) or nothing


def key_of(rewriter: str, site: Site, variant: str = "") -> Key:
    name = ".".join(filter(None, (site.module_class, site.detail.get("function"))))
    return Key(rewriter, f"{site.file}:{name}" if name else site.file, variant)


def _with_runtime(changed: dict[str, str]) -> dict[str, str]:
    """With what a changed copy of a library module needs to come into its place."""
    needed = [overlay.runtime(path) for path in changed]
    return {**{path: text for files in needed for path, text in files.items()}, **changed}


def gain_without(share: float | None, part: float = 1.0) -> float | None:
    """Speedup of a call when `part` of a share of its time goes away (Amdahl)."""
    saved = (share or 0.0) * part
    return round(1.0 / (1.0 - min(saved, 0.9)), 3) if saved else None


def percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} % of a call" if (share or 0.0) >= 0.01 else "under 1 % of a call"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def short(path: str) -> str:
    """A third-party file as it is imported: the part below site-packages."""
    return path.rpartition("-packages/")[2]


def places(site: Site) -> str:
    """Where a site is, for a person: `Attention (model.py:67)`."""
    return f"{site.module_class or site.detail.get('function', 'the function')} ({site.file}:{site.line})"
