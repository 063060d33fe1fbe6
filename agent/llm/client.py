"""Ask an OpenAI-compatible endpoint by chat.completions, streamed. The only file that imports openai.

There is one layer of retries, here: what may pass (a limit of requests, a server in trouble, a connection that drops)
is asked again after a while; what will not (a refused key, an unknown model) is an error at once. It refuses to hold
the key anywhere but in memory.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai

from agent.llm import (
    ContextFull,
    KeyRefused,
    Message,
    ModelError,
    ModelUnknown,
    ModelUnreachable,
    ToolCall,
    Turn,
    Usage,
)
from tools.plain_text import one_line

RETRIES = 5
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
PATIENCE_S = 300.0  # a longer wait than this is not waited for
CONNECT_S, ANSWER_S = 15.0, 600.0
_PASSING = {408, 409, 425, 429}  # and all above 499
_FINISHES = {"stop", "tool_calls", "length", "content_filter"}
_WIDTH = 300
LONGEST_ANSWER, LONGEST_ANSWER_S = 4_000_000, 3600.0  # characters and seconds; what comes after it is not listened to


@dataclass(frozen=True)
class Endpoint:
    """Where a model is. The key stands in no file of ours."""

    base_url: str | None  # None: what the library takes
    model: str
    key: str = field(repr=False, default="")


class _Passing(Exception):
    """What may work the next time."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Client:
    """A `Chat`. `told` hears of every wait."""

    def __init__(
        self, endpoint: Endpoint, told: Callable[[str], None] = lambda said: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.endpoint, self._told, self._sleep = endpoint, told, sleep
        self._limit = "max_completion_tokens"  # what the endpoint calls the limit of an answer
        timeout = openai.Timeout(ANSWER_S, connect=CONNECT_S)
        self._openai = openai.OpenAI(base_url=endpoint.base_url, api_key=endpoint.key or "none", max_retries=0,
                                     timeout=timeout)  # fmt: skip

    def close(self) -> None:
        self._openai.close()

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], most_tokens: int | None = None) -> Turn:
        """Raises: ModelUnreachable, KeyRefused, ModelUnknown, ContextFull, ModelError."""
        for tried in range(RETRIES + 1):
            try:
                return self._ask_once(messages, tools, most_tokens)
            except _Passing as reason:
                wait_s = reason.after_s
                if wait_s is None:
                    wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**tried) * random.uniform(0.75, 1.25)
                if tried == RETRIES or wait_s > PATIENCE_S:
                    raise ModelUnreachable(
                        f"{self._where} does not answer: {reason}",
                        hint="Look whether it is up and --base-url is right; what was proven is kept, and "
                        "`agent resume` goes on.",
                    ) from reason.__cause__
                self._told(f"the model's endpoint: {reason}; asking again in {wait_s:.0f} s")
                self._sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    @property
    def _where(self) -> str:
        return f"The model {self.endpoint.model} at {self._openai.base_url}"

    def _ask_once(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], most_tokens: int | None) -> Turn:
        request: dict[str, Any] = {"model": self.endpoint.model, "messages": list(messages), "stream": True,
                                   "stream_options": {"include_usage": True}}  # fmt: skip
        if tools:
            request["tools"] = list(tools)
        if most_tokens is not None:
            request[self._limit] = most_tokens
        try:
            with self._openai.chat.completions.create(**request) as stream:
                if "html" in stream.response.headers.get("content-type", ""):
                    raise ModelUnreachable(f"{self._where} is no such endpoint: it answers with a page of HTML.",
                                           hint="--base-url usually ends in /v1.")  # fmt: skip
                return _heard(stream)
        except openai.BadRequestError as error:
            if most_tokens is not None and self._limit in str(error.message) and self._limit != "max_tokens":
                self._limit = "max_tokens"  # what older servers call it
                return self._ask_once(messages, tools, most_tokens)
            raise self._refused(error) from error
        except openai.APIStatusError as error:
            raise self._refused(error) from error
        except openai.APIConnectionError as error:
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            raise _Passing(self._without_key(f"{error.message}{cause}")) from error
        except openai.APIError as error:
            raise _Passing(self._without_key(error.message)) from error
        except (ValueError, AttributeError, TypeError, KeyError) as error:  # what came is no such stream
            raise _Passing(f"what it sends is not of the API: {self._without_key(str(error))}") from error

    def _without_key(self, said: str) -> str:
        """In one line; some endpoints repeat the key that they refuse."""
        return one_line(said.replace(self.endpoint.key, "[key]") if self.endpoint.key else said, _WIDTH)

    def _refused(self, error: openai.APIStatusError) -> Exception:
        status, said = error.status_code, self._without_key(str(error.message))
        if status in (401, 403):
            return KeyRefused(f"{self._where} refuses the key: {said}",
                              hint="Set OPENAI_API_KEY to a key for this endpoint.")  # fmt: skip
        if status == 404:
            return ModelUnknown(f"{self._where} is not known there: {said}",
                                hint="--model names one that it lists; --base-url usually ends in /v1.")  # fmt: skip
        if status == 429 and error.code == "insufficient_quota":
            return KeyRefused(
                f"{self._where} has no quota left for this key: {said}", hint="Top it up, or use another."
            )
        if status in _PASSING or status >= 500:
            return _Passing(f"status {status}: {said}", _retry_after(error))
        if error.code == "context_length_exceeded" or "context length" in said.lower():
            return ContextFull(f"{self._where} cannot read that much: {said}")
        return ModelError(f"{self._where} refuses the request (status {status}): {said}",
                          hint="Another endpoint or model may take it.")  # fmt: skip


def _retry_after(error: openai.APIStatusError) -> float | None:
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(error.response.headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    return None


def _heard(stream: Any) -> Turn:
    """Put the parts of a streamed answer together. Raises: _Passing when it ends before it is whole."""
    begun, length = time.monotonic(), 0
    text, reasoning, finish, usage = list[str](), list[str](), "", Usage()
    calls: dict[int, dict[str, str]] = {}
    for chunk in stream:
        if chunk.usage is not None:
            usage = _usage(chunk.usage)
        for choice in chunk.choices[:1]:
            delta = choice.delta
            text.append(delta.content or "")
            extra = delta.model_extra or {}
            reasoning.append(str(extra.get("reasoning_content") or extra.get("reasoning") or ""))
            length += len(text[-1]) + len(reasoning[-1])
            for part in delta.tool_calls or ():
                # some servers leave the index out; an id then begins another call
                index = part.index if part.index is not None else len(calls) - (0 if part.id else 1)
                call = calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
                call["id"] = part.id or call["id"]
                if part.function is not None:
                    call["name"] += part.function.name or ""
                    call["arguments"] += part.function.arguments or ""
                    length += len(part.function.arguments or "")
            finish = choice.finish_reason or finish
        if length > LONGEST_ANSWER or time.monotonic() - begun > LONGEST_ANSWER_S:
            finish = "length"
            break
    if not finish:
        raise _Passing("the answer broke off")
    if finish not in _FINISHES:
        finish = "tool_calls" if calls else "stop"
    heard = [ToolCall(id=call["id"] or f"call_{index}", **{k: call[k] for k in ("name", "arguments")})
             for index, call in sorted(calls.items())]  # fmt: skip
    return Turn(text="".join(text), calls=heard, finish=finish, usage=usage, reasoning="".join(reasoning))


def _usage(told: Any) -> Usage:
    details = getattr(told, "prompt_tokens_details", None)
    return Usage(prompt=told.prompt_tokens, completion=told.completion_tokens,
                 cached=getattr(details, "cached_tokens", None))  # fmt: skip
