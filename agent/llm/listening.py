"""Assemble a streamed answer, whatever the server.

Handled here: tool calls without an index, or all with the same one; reasoning inside of the text; surrogate halves that
come in different chunks; a refusal beside the text.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from agent.llm import ToolCall, Turn, Usage

TELL_EVERY_S = 2.0
TELL_SHARE = 0.2  # of the time an answer has taken; a long one is told of less often
_FINISHES = {"stop", "tool_calls", "length", "content_filter"}
# at the start of an answer; a template may have opened it already, and then only its end is there, on a line's end
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
    _parts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _calls: list[_Call] = field(default_factory=list)
    _at: dict[int, _Call] = field(default_factory=dict)  # the call that an index means now

    def hear(self, chunks: Iterable[Any], longest: int) -> None:
        """Until it ends, or is longer than so many characters: then it is cut there."""
        begun = time.monotonic()
        tell_at = begun + TELL_EVERY_S
        for chunk in chunks:
            if (told := chunk.usage) is not None:
                cached = getattr(getattr(told, "prompt_tokens_details", None), "cached_tokens", None)
                self.usage = Usage(prompt=told.prompt_tokens, completion=told.completion_tokens, cached=cached)
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
        reasoning = str(extra.get("reasoning_content") or extra.get("reasoning") or "")
        for name, part in (("text", delta.content), ("reasoning", reasoning), ("refusal", delta.refusal)):
            self._parts[name].append(part or "")
            self.characters += len(part or "")
        for part in delta.tool_calls or ():
            call = self._call_of(part)
            call.id = part.id or call.id
            self.characters += len(part.id or "")
            if part.function is not None:
                call.name += part.function.name or ""
                call.arguments += part.function.arguments or ""
                self.characters += len(part.function.name or "") + len(part.function.arguments or "")

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
        text, reasoning, self.refusal = (whole("".join(self._parts[n])) for n in ("text", "reasoning", "refusal"))
        if (inside := _THOUGHTS.match(text)) is not None:
            text = text[inside.end() :].lstrip()
            reasoning = "\n".join(filter(None, (reasoning, (inside[2] if inside[1] else inside[3]).strip())))
        finish = self.finish if self.finish in _FINISHES else "tool_calls" if self._calls else "stop"
        if self.refusal and not text and not self._calls:
            text, finish = self.refusal, "content_filter"
        calls = [
            ToolCall(id=call.id or f"call_{number}", name=whole(call.name), arguments=whole(call.arguments))
            for number, call in enumerate(self._calls)
        ]
        return Turn(text=text, calls=calls, finish=finish, usage=self.usage, reasoning=reasoning)


def whole(text: str) -> str:
    """Surrogate halves that follow each other become one character; a half alone, which no file can hold, a mark."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
