"""Match kernel names of two profilers, which spell the same kernel differently.

A name that could be one of several is ambiguous and matched with none. Of a mangled name the template is not read.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

_RETURNS = re.compile(r"^(?:__global__ )?void ")
_ANONYMOUS = "(anonymous namespace)"
# as GNU's demangler spells what LLVM's calls 'lambda'(int), 'lambda0'(int) and so on
_LAMBDA = re.compile(r"\{lambda\(([^{}]*)\)#(\d{1,4})\}")
# of the descriptor of a kernel's code: ` [clone .kd]`, ` (.kd)` (seen on MI300) or `.kd`
_DESCRIPTOR = re.compile(r"( \[clone [^\]]*\]| ?\(\.kd\)|\.kd)+$")
_PLAIN_SPACES = re.compile(r"\s+")
_NEEDLESS_SPACES = re.compile(r"(?<!\w) | (?!\w)")  # all but those between two words


@dataclass(frozen=True)
class Name:
    """A kernel's name in its parts; None for a part that the spelling leaves out."""

    base: str
    template: str | None = None
    arguments: str | None = None

    def may_be(self, other: Name) -> bool:
        """Whether both may be spellings of one kernel."""
        return self.base == other.base and all(
            mine is None or theirs is None or mine == theirs
            for mine, theirs in ((self.template, other.template), (self.arguments, other.arguments))
        )


@dataclass
class Matches:
    """`found` leads from our name to the tool's; the others are those of ours that have several, or none."""

    found: dict[str, str] = field(default_factory=dict)
    ambiguous: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def match(ours: Collection[str], theirs: Collection[str]) -> Matches:
    """Equal names first, then equal parts; then a pair of which each may be the other and nothing else."""
    parts = {name: parse(name) for name in (*ours, *theirs)}
    mine, equal = list(dict.fromkeys(ours)), set(theirs)
    same, related = defaultdict[Name, list[str]](list), defaultdict[str, list[str]](list)
    for name in dict.fromkeys(theirs):
        same[parts[name]].append(name)
        related[parts[name].base].append(name)
    likes = {name: [each for each in related[parts[name].base] if parts[each].may_be(parts[name])] for name in mine}
    wanted = Counter(each for found in likes.values() for each in found)
    spelled = Counter(parts[name] for name in mine)
    matches = Matches()
    for name in mine:
        alike, like = same[parts[name]], likes[name]
        if name in equal:
            matches.found[name] = name
        elif len(alike) == 1 and spelled[parts[name]] == 1:
            matches.found[name] = alike[0]
        elif len(like) == 1 and wanted[like[0]] == 1:
            matches.found[name] = like[0]
        else:
            (matches.ambiguous if like else matches.missing).append(name)
    return matches


def parse(name: str) -> Name:
    """`void ns::kernel<int, 4>(float*) [clone .kd]` is (`ns::kernel`, `<int,4>`, `(float*)`)."""
    text = _DESCRIPTOR.sub("", _PLAIN_SPACES.sub(" ", name).strip())
    if text.startswith("_Z"):
        base = _unmangled(text)
        return Name(text) if base is None else Name(base)
    text = _with_lambdas(_RETURNS.sub("", text).replace(_ANONYMOUS, "'anonymous'"))
    text = _NEEDLESS_SPACES.sub("", text)
    template, arguments = _first(text, "<"), _first(text, "(")
    if template is not None and (arguments is None or template < arguments):
        end = _closing(text, template)
        rest = text[end:]
        if rest and not rest.startswith("("):  # a member of a template: it is told apart by all that it has
            return Name(text)
        return Name(text[:template], text[template:end], rest or None)
    return Name(text) if arguments is None else Name(text[:arguments], None, text[arguments:])


def plain_part(kernel: str) -> str:
    """The name without what its spellings differ in."""
    return parse(kernel).base.replace("'anonymous'", _ANONYMOUS)


def _with_lambdas(text: str) -> str:
    """With all lambdas in LLVM's spelling, those inside others first. From memory; not checked on hardware."""

    def spelled(found: re.Match[str]) -> str:
        number = int(found[2])
        return f"'lambda{number - 2 if number > 1 else ''}'({found[1]})"

    while (after := _LAMBDA.sub(spelled, text)) != text:
        text = after
    return text.replace("{unnamed type#1}", "'unnamed'")


def _first(text: str, sign: str) -> int | None:
    found = text.find(sign)
    return found if found > 0 else None


def _closing(text: str, start: int) -> int:
    """Behind the bracket that closes the template which opens at `start`; the end of a text that was cut."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] == "<":
            depth += 1
        elif text[at] == ">" and text[at - 1] != "-":
            depth -= 1
            if depth == 0:
                return at + 1
    return len(text)


def _unmangled(name: str) -> str | None:
    """The plain name in a mangled one (Itanium C++ ABI, 5.1): its identifiers up to the first template."""
    text, parts = name[2:], list[str]()
    nested = text.startswith("N")
    text = text.removeprefix("N").lstrip("KVr")
    while found := re.match(r"L?(\d{1,4})", text):
        length, text = int(found[1]), text[found.end() :]
        if length == 0 or length > len(text):
            return None
        part, text = text[:length], text[length:]
        parts.append("'anonymous'" if part.startswith("_GLOBAL__N_") else part)
        if not nested:
            break
    return "::".join(parts) or None
