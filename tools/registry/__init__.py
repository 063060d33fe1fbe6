"""Tools of a run: one definition each, offered to models and to MCP clients.

A tool is a request and a function on a session that answers in text. When a call does not work, the answer says what
to do; an internal error is raised, and never told as the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from tools.plain_text import one_line

LONGEST = 16_000  # characters of one answer: some 4000 tokens
_LONGEST_LINE = LONGEST - 1000  # of a file that a program wrote, say
_SHOWN_ERRORS = 5


class _Untitled(GenerateJsonSchema):
    """Without titles, which repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Request(BaseModel):
    """What a tool is asked. A model sees the docstrings of its fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ToolFault(Exception):
    """What was asked cannot be done; the message says why, `hint` what to do instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)


@dataclass(frozen=True)
class Tool:
    """`function(session, request)` gives the answer, or raises ToolFault."""

    name: str
    request: type[Request]
    function: Callable[[Any, Any], str] | None = None
    """None for a listing, where other code answers the calls."""
    looks_only: bool = False
    """It leaves the candidate as it is, so that only who reads the answer needs it."""

    @property
    def description(self) -> str:
        return " ".join((self.request.__doc__ or "").split())

    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the request."""
        schema = self.request.model_json_schema(schema_generator=_Untitled)
        return {name: value for name, value in schema.items() if name not in ("title", "description")}

    def as_function(self) -> dict[str, Any]:
        """As chat.completions takes it."""
        told = {"name": self.name, "description": self.description, "parameters": self.parameters()}
        return {"type": "function", "function": told}


@dataclass(frozen=True)
class Answer:
    text: str
    worked: bool = True
    whole: str = ""
    """The text before it was cut, of a call that worked."""


class Registry:
    """The tools of one kind of session."""

    def __init__(self, tools: Sequence[Tool], *, looks: bool = True) -> None:
        """`looks`: what only looks says what it sees."""
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self.looks = looks

    def as_functions(self) -> list[dict[str, Any]]:
        return [tool.as_function() for tool in self.tools.values()]

    def without_looking(self) -> Registry:
        """The same, but what only looks says nothing: for a caller whose next call is known already."""

        def nothing(session: object, request: Request) -> str:
            raise ToolFault("Not looked again: nobody reads what a replay would see.")

        tools = self.tools.values()
        return Registry([replace(tool, function=nothing) if tool.looks_only else tool for tool in tools], looks=False)

    def with_more(self, tools: Sequence[Tool]) -> Registry:
        """The same, and these."""
        return Registry([*self.tools.values(), *tools], looks=self.looks)

    def call(self, session: Any, name: str, arguments: str | Mapping[str, Any]) -> Answer:
        """Call one tool with arguments as a model writes them. Raises internal errors."""
        tool = self.tools.get(name)
        try:
            if tool is None:
                raise ToolFault(f"There is no tool {one_line(name, 80)}.", f"There are {', '.join(self.tools)}.")
            request = _request(tool, arguments)
            assert tool.function is not None, f"{name} is only described here"
            whole = tool.function(session, request)
            return Answer(cut(whole), whole=whole)
        except ToolFault as fault:
            return Answer(cut(str(fault)), worked=False)


def cut(text: str, longest: int = LONGEST, more: str = "") -> str:
    """The beginning and the end of what is too long, and how to see the rest."""
    if len(text) <= longest:
        return text
    head, tail = text[: longest * 2 // 3], text[-(longest // 3) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out} characters left out{f'; {more}' if more else ''} …]\n{tail}"


def paged(lines: Sequence[str], first: int, most: int | None, *, what: str, tool: str) -> str:
    """The lines from the `first` on, counted from 1, that fit into an answer, and how `tool` shows the rest.

    Raises: ToolFault when `what` has no such line.
    """
    if first > max(1, len(lines)):
        raise ToolFault(f"{what} has {len(lines)} lines.", "Read from an earlier line.")
    shown, length = list[str](), 0
    for whole in lines[first - 1 :][:most]:
        line = cut(whole, _LONGEST_LINE, "`run` shows all of it, as with cut -c")
        length += len(line) + 1
        if length > LONGEST - 200 and shown:
            break
        shown.append(line)
    following = first + len(shown)
    rest = len(lines) + 1 - following
    more = f"\n[… {rest} more lines: {tool} with first_line={following} …]" if rest else ""
    return "\n".join(shown) + more


def _request(tool: Tool, arguments: str | Mapping[str, Any]) -> Request:
    """Raises: ToolFault."""
    try:
        read = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
        return tool.request.model_validate(read)
    except ValidationError as error:
        lines = [
            one_line(f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}", 300)
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        message, hint = "\n".join(lines[:_SHOWN_ERRORS]), f"{tool.name} takes {json.dumps(tool.parameters())}"
        raise ToolFault(message, hint) from error
    except (ValueError, RecursionError) as error:  # also numbers and nests beyond what Python reads
        raise ToolFault(f"The arguments are no JSON: {error}.", "Send one JSON object.") from error
