"""Put the parts of a streamed answer together. It asks nothing, and judges nothing that it hears.

What servers do differently is made one here: calls without an index, or all with the same one, thoughts inside of the
text, halves of a character, a refusal beside the text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from agent.llm import ToolCall, Turn, Usage

TELL_EVERY_S = 2.0
TELL_SHARE = 0.2  # of the time an answer has taken; a long one is told of less often
_FINISHES = {"stop", "tool_calls", "length", "content_filter"}
# where an answer begins; a template may have opened it already, and then only its end is there, on a line's end
_THOUGHTS = re.compile(
    r"\A\s*<(think|thinking)>(.*?)(?:</\1>|\Z)"
    r"|\A((?:(?!<think).)*?)</think(?:ing)?>[ \t]*(?:\n|\Z)",
    re.DOTALL,
)


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class Listener:
    """One answer as it comes. `told` hears how many characters it has, once in a while."""

    told: Callable[[int], None] = lambda characters: None
    characters: int = 0
    finish: str = ""
    usage: Usage = field(default_factory=Usage)
    refusal: str = ""
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _refusal: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _at: dict[int, _Call] = field(default_factory=dict)  # the call that an index means now

    def hear(self, chunks: Iterable[Any], longest: int) -> None:
        """Until it ends, or is longer than so many characters: then it is cut there."""
        begun = time.monotonic()
        tell_at = begun + TELL_EVERY_S
        for chunk in chunks:
            if chunk.usage is not None:
                self.usage = _usage(chunk.usage)
            for choice in chunk.choices[:1]:
                self._take(choice.delta)
                self.finish = choice.finish_reason or self.finish
            if self.characters > longest:
                self.finish = "length"
                return
            if (now := time.monotonic()) >= tell_at:
                self.told(self.characters)
                tell_at = now + max(TELL_EVERY_S, TELL_SHARE * (now - begun))

    def _take(self, delta: Any) -> None:
        extra = delta.model_extra or {}
        thought = str(extra.get("reasoning_content") or extra.get("reasoning") or "")
        said = ((self._text, delta.content), (self._reasoning, thought), (self._refusal, delta.refusal))
        for into, part in said:
            if part:
                into.append(part)
                self.characters += len(part)
        for part in delta.tool_calls or ():
            call = self._call_of(part)
            call.id = part.id or call.id
            self.characters += len(part.id or "")
            if part.function is not None:
                name, arguments = part.function.name or "", part.function.arguments or ""
                call.name, call.arguments = call.name + name, call.arguments + arguments
                self.characters += len(name) + len(arguments)

    def _call_of(self, part: Any) -> _Call:
        """Some servers leave the index out, others say 0 of each: a new id, with a name, begins another call."""
        index = part.index if part.index is not None else -1
        call = self._at.get(index)
        named = part.function is not None and part.function.name
        other = call is not None and call.id and part.id and part.id != call.id and (named or part.index is None)
        if call is None or other:
            call = self._at[index] = _Call()
            self._calls.append(call)
        return call

    def turn(self) -> Turn:
        text, thoughts = _without_thoughts(_whole(self._text))
        finish = self.finish if self.finish in _FINISHES else "tool_calls" if self._calls else "stop"
        self.refusal = _whole(self._refusal)
        if self.refusal and not text and not self._calls:
            text, finish = self.refusal, "content_filter"
        calls = [
            ToolCall(id=call.id or f"call_{number}", name=whole(call.name), arguments=whole(call.arguments))
            for number, call in enumerate(self._calls)
        ]
        reasoning = "\n".join(part for part in (_whole(self._reasoning), thoughts) if part)
        return Turn(text=text, calls=calls, finish=finish, usage=self.usage, reasoning=reasoning)


def whole(text: str) -> str:
    """Halves of a character that follow each other become one; a half alone, which no file can hold, a mark."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _whole(parts: Iterable[str]) -> str:
    return whole("".join(parts))


def _without_thoughts(text: str) -> tuple[str, str]:
    """What is said, and the thoughts that stand before it in marks."""
    found = _THOUGHTS.match(text)
    if found is None:
        return text, ""
    return text[found.end() :].lstrip(), (found[2] if found[1] else found[3]).strip()


def _usage(told: Any) -> Usage:
    details = getattr(told, "prompt_tokens_details", None)
    return Usage(
        prompt=told.prompt_tokens, completion=told.completion_tokens, cached=getattr(details, "cached_tokens", None)
    )
