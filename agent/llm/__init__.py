"""Talking to a model: what is said and heard, as plain records. Only `client.py` imports openai.

A model works with the tools of a run and has no say in any verdict.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from agent.errors import AgentError

Message = dict[str, Any]  # as chat.completions takes it
NO_ANSWER = "(no answer)"  # in the place of one, where a model is told what it said


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class ModelError(AgentError):
    """The model could not be asked."""

    exit_status = 90


class ModelRefused(ModelError):
    """The endpoint does not take the request as it is."""


class ModelUnreachable(ModelError):
    """The endpoint of the model does not answer, or does not speak the API."""

    exit_status = 91


class KeyRefused(ModelError):
    """The endpoint does not accept the key, or there is none."""

    exit_status = 92


class ModelUnknown(ModelError):
    """The endpoint does not know the model."""

    exit_status = 93


class ModelWithoutTools(ModelError):
    """The model does not call the tools that it is offered."""

    exit_status = 94


class ContextFull(ModelError):
    """What was said is longer than the model can read."""

    exit_status = 95


class BudgetReached(ModelError):
    """A limit of tokens, dollars or time does not allow another request."""


class NotRecorded(ModelError):
    """A replay was asked for more than was recorded: the end of one conversation."""


class Usage(_Record):
    """Tokens of one exchange; None where the endpoint does not say, which is not 0."""

    prompt: int | None = Field(default=None, ge=0)
    completion: int | None = Field(default=None, ge=0)
    """Reasoning included."""
    cached: int | None = Field(default=None, ge=0)
    """Of the prompt, read from a cache."""

    @property
    def total(self) -> int | None:
        return None if self.prompt is None or self.completion is None else self.prompt + self.completion


class ToolCall(_Record):
    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it: perhaps none."""


class Turn(_Record):
    """What a model answered."""

    text: str = ""
    calls: list[ToolCall] = Field(default_factory=list)
    finish: Literal["stop", "tool_calls", "length", "content_filter"] = "stop"
    usage: Usage = Usage()
    reasoning: str = ""
    """Where the endpoint shows it; never sent back."""

    def as_message(self) -> Message:
        """Never without both words and calls, which servers refuse."""
        message: Message = {"role": "assistant", "content": self.text or (None if self.calls else NO_ANSWER)}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _as_json(call.arguments)},
                }
                for call in self.calls
            ]
        return message


def _as_json(arguments: str) -> str:
    """As they were, where they are an object: servers read the arguments of earlier calls."""
    try:
        told = json.loads(arguments or "{}", parse_constant=_no_number)
    except (ValueError, RecursionError):
        return json.dumps({"not_json": arguments[:1000]})
    return arguments if isinstance(told, dict) and arguments else "{}"


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is in no JSON")


class Chat(Protocol):
    """Answers one request."""

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        """Raises: ModelError."""
        ...
