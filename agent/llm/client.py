"""Ask an OpenAI-compatible endpoint by chat.completions, streamed. The only file that imports openai.

There is one layer of retries, here: what may pass (a limit of requests, a server in trouble, a connection that drops)
is asked again after a while; what will not (a refused key, an unknown model) is an error at once. The key is held in
memory only. A request does not outlast the time that the run has left.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import openai

from agent.llm import (
    BudgetReached,
    ContextFull,
    KeyRefused,
    Message,
    ModelError,
    ModelRefused,
    ModelUnknown,
    ModelUnreachable,
    Turn,
)
from agent.llm.bounded import Bounded
from agent.llm.listening import Listener, whole
from tools.plain_text import one_line

RETRIES = 5
LATER_RETRIES = 7  # of an endpoint that has answered: in two minutes a server that starts again is up again
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
PATIENCE_S = 300.0  # a longer wait than this is not waited for
CONNECT_S, ANSWER_S = 15.0, 600.0  # to be let in, and between two signs of life
LONGEST_ANSWER, LONGEST_ANSWER_S = 4_000_000, 3600.0  # characters and seconds; what comes after it is not listened to
_PASSING = {408, 409, 425, 429}  # and all above 499 but 501
_REFUSED = {400, 405, 413, 415, 422, 501}
# of OpenAI and vLLM, llama.cpp, Anthropic and Google, in this order
_FULL = re.compile(r"context (length|size|window)|prompt is too long|input token count .*exceeds", re.IGNORECASE)
_FULL_CODES = {"context_length_exceeded", "exceed_context_size_error"}
_WIDTH = 300
_until: ContextVar[float] = ContextVar("_until", default=math.inf)  # of the request that is being made


class _Passing(Exception):
    """What may work the next time."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Client:
    """A `Chat`. `told` hears of every wait and refusal, `answering` of how long an answer is until now; `deadline`, on
    time.monotonic(), is when the run's time is used up.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None,
        key: str = "",
        *,
        told: Callable[[str], None] = lambda said: None,
        sleep: Callable[[float], None] = time.sleep,
        answering: Callable[[int], None] = lambda characters: None,
        deadline: float = math.inf,
    ) -> None:
        """`base_url` None: what the library takes. The key stands in no file of ours. Raises: KeyRefused."""
        if not (key.isascii() and key.isprintable()):
            raise KeyRefused(
                f"The key for {model} holds a character that no key can hold.",
                hint="Copy it again: a line's end or an accent may have got in.",
            )
        self._model, self._key, self._told, self._sleep, self._answering = model, key, told, sleep, answering
        self._deadline, self._answered = deadline, False
        web = openai.DefaultHttpxClient(event_hooks={"response": [_bound]})
        self._openai = openai.OpenAI(base_url=base_url, api_key=key or "none", max_retries=0, http_client=web)
        self._where = f"The model {model} at {self._openai.base_url}"

    def close(self) -> None:
        self._openai.close()

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        """Raises: ModelUnreachable, KeyRefused, ModelUnknown, ModelRefused, ContextFull, BudgetReached, ModelError."""
        messages = [{**each, "content": whole(each["content"])} if each.get("content") else each for each in messages]
        # who asks after the deadline has a reason to
        ends = self._deadline if time.monotonic() < self._deadline else math.inf
        for tried in range(LATER_RETRIES + 1):
            try:
                turn = self._ask_once(messages, tools, ends)
                self._answered = True
                return turn
            except _Passing as reason:
                self._wait(reason, tried, ends)
        raise AssertionError("the last try returns or raises")

    def _wait(self, reason: _Passing, tried: int, ends: float) -> None:
        wait_s = reason.after_s
        if wait_s is None:
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**tried) * random.uniform(0.75, 1.25)
        if time.monotonic() + wait_s >= ends:
            raise BudgetReached(f"the run has no time left to ask again; the model's endpoint: {reason}") from None
        if tried == (LATER_RETRIES if self._answered else RETRIES) or wait_s > PATIENCE_S:
            raise ModelUnreachable(
                f"{self._where} does not answer: {reason}",
                hint="Look whether it is up and --base-url is right; what was proven is kept, and "
                "`agent resume` goes on.",
            ) from None
        self._told(f"the model's endpoint: {reason}; asking again in {wait_s:.0f} s")
        self._sleep(wait_s)

    def _ask_once(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], ends: float) -> Turn:
        """No error is chained to the library's own, which may hold the key."""
        left_s = max(0.001, ends - time.monotonic())
        request: dict[str, Any] = {
            "model": self._model,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": openai.Timeout(min(ANSWER_S, left_s), connect=min(CONNECT_S, left_s)),
        }
        if tools:
            request["tools"] = list(tools)
        listener = Listener(self._answering)
        mark = _until.set(min(ends, time.monotonic() + LONGEST_ANSWER_S))
        try:
            with self._openai.chat.completions.create(**request) as stream:
                if "html" in stream.response.headers.get("content-type", ""):
                    raise ModelUnreachable(
                        f"{self._where} is no such endpoint: it answers with a page of HTML.",
                        hint="--base-url usually ends in /v1.",
                    )
                listener.hear(stream, LONGEST_ANSWER)
                return self._heard(listener, stream.response.stream, ends)
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        except openai.APIConnectionError as error:
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            raise _Passing(self._without_key(f"{error.message}{cause}")) from None
        except openai.APIError as error:
            raise _Passing(self._without_key(error.message)) from None
        except (ValueError, AttributeError, TypeError, KeyError) as error:  # what came is no such stream
            raise _Passing(f"what it sends is not of the API: {self._without_key(str(error))}") from None
        finally:
            _until.reset(mark)

    def _heard(self, listener: Listener, body: Any, ends: float) -> Turn:
        if not listener.finish:
            cut = body.ended_by if isinstance(body, Bounded) else ""
            if not cut:
                raise _Passing("the answer broke off")
            if cut == "time" and not listener.characters and time.monotonic() < ends:
                raise ModelUnreachable(f"{self._where} said nothing in {LONGEST_ANSWER_S:.0f} s.")
            listener.finish = "length"
        turn = listener.turn()
        if listener.refusal:
            self._told(f"the model refuses: {self._without_key(listener.refusal)}")
        return turn

    def _without_key(self, said: str) -> str:
        """In one line; some endpoints repeat the key that they refuse, and some errors what was sent, escaped."""
        for form in {self._key, repr(self._key)[1:-1], json.dumps(self._key)[1:-1]} - {""}:
            said = said.replace(form, "[key]")
        return one_line(said, _WIDTH)

    def _refused(self, error: openai.APIStatusError) -> Exception:
        status, said = error.status_code, self._without_key(str(error.message))
        full = not _FULL_CODES.isdisjoint({str(error.code), str(error.type)}) or _FULL.search(str(error.message))
        kind: type[ModelError] = ModelRefused if status in _REFUSED else ModelError
        what = f"refuses the request (status {status}): {said}"
        hint = "Another endpoint or model may take it."
        if status in (401, 403):
            kind, what = KeyRefused, f"refuses the key: {said}"
            hint = "Set OPENAI_API_KEY to a key for this endpoint."
        elif status == 404:
            kind, what = ModelUnknown, f"is not known there: {said}"
            hint = "--model and --reviewer name what it lists; --base-url usually ends in /v1."
        elif status == 429 and error.code == "insufficient_quota":
            kind, what, hint = KeyRefused, f"has no quota left for this key: {said}", "Top it up, or use another."
        elif full and status != 429:
            kind, what, hint = ContextFull, f"cannot read that much: {said}", ""
        elif status in _PASSING or (status >= 500 and status not in _REFUSED):
            return _Passing(f"status {status}: {said}", _retry_after(error))
        return kind(f"{self._where} {what}", hint=hint)


def _bound(response: Any) -> None:
    response.stream = Bounded(response, _until.get(), 2 * LONGEST_ANSWER)


def _retry_after(error: openai.APIStatusError) -> float | None:
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return max(0.0, float(error.response.headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    return None
