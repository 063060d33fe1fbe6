"""Tools of a run: one definition each, offered to models, to MCP clients and to people.

A tool is a request, a result and a function on a session. Whoever calls one is told what to do when it does not work;
a fault of ours is raised, and never told as the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tools.plain_text import one_line

LONGEST = 16_000  # characters of one answer: some 4000 tokens
_LONGEST_LINE = LONGEST - 1000  # of a file that a program wrote, say
_SHOWN_ERRORS = 5


class Request(BaseModel):
    """What a tool is asked. The docstrings of its fields are what a model is told of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Result(BaseModel):
    """What a tool answers."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    def text(self) -> str:
        """As a model or a person reads it; `cut` where it may be long."""
        raise NotImplementedError


class ToolFault(Exception):
    """What was asked cannot be done; the message says why, `hint` what to do instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)


@dataclass(frozen=True)
class Tool:
    """`function(session, request)` gives a `Result`, or raises ToolFault."""

    name: str
    request: type[Request]
    function: Callable[[Any, Any], Result]
    looks_only: bool = False
    """It leaves the candidate as it is, so that only who reads the answer needs it."""

    @classmethod
    def only_described(cls, name: str, request: type[Request]) -> Tool:
        """For a listing; somebody else answers its calls."""

        def function(session: object, request: Request) -> Result:
            raise AssertionError(f"{name} is only described here")

        return cls(name, request, function)

    @property
    def description(self) -> str:
        return " ".join((self.request.__doc__ or "").split())

    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the request."""
        schema = _without_titles(self.request.model_json_schema())
        schema.pop("description", None)
        return schema

    def as_function(self) -> dict[str, Any]:
        """As chat.completions takes it."""
        told = {"name": self.name, "description": self.description, "parameters": self.parameters()}
        return {"type": "function", "function": told}


@dataclass(frozen=True)
class Answer:
    """What a call came to."""

    text: str
    worked: bool = True
    result: Result | None = None


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

        def nothing(session: object, request: Request) -> Result:
            raise ToolFault("Not looked again: nobody reads what a replay would see.")

        tools = self.tools.values()
        return Registry([replace(tool, function=nothing) if tool.looks_only else tool for tool in tools], looks=False)

    def with_more(self, tools: Sequence[Tool]) -> Registry:
        """The same, and these."""
        return Registry([*self.tools.values(), *tools], looks=self.looks)

    def call(self, session: Any, name: str, arguments: str | Mapping[str, Any]) -> Answer:
        """Call one tool with arguments as a model writes them. Raises what is a fault of ours."""
        tool = self.tools.get(name)
        if tool is None:
            return _failed(f"There is no tool {one_line(name, 80)}.", f"There are {', '.join(self.tools)}.")
        try:
            request = tool.request.model_validate(_read(arguments))
        except ValidationError as error:
            return _failed(_what_is_wrong(error), f"{name} takes {json.dumps(tool.parameters())}")
        except ToolFault as fault:
            return Answer(cut(str(fault)), worked=False)
        try:
            result = tool.function(session, request)
        except ToolFault as fault:
            return Answer(cut(str(fault)), worked=False)
        return Answer(cut(result.text()), result=result)


def cut(text: str, longest: int = LONGEST, more: str = "") -> str:
    """The beginning and the end of what is too long, and how to see the rest."""
    if len(text) <= longest:
        return text
    head, tail = text[: longest * 2 // 3], text[-(longest // 3) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out} characters left out{f'; {more}' if more else ''} …]\n{tail}"


def paged(lines: Sequence[str], first: int, most: int | None, *, what: str, tool: str) -> str:
    """The lines from the `first` on, counted from 1, that fit into an answer, and how `tool` shows the rest. Raises:
    ToolFault when `what` has no such line.
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


def _read(arguments: str | Mapping[str, Any]) -> Any:
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:  # also numbers and nests beyond what Python reads
        raise ToolFault(f"The arguments are no JSON: {error}.", "Send one JSON object.") from error


def _what_is_wrong(error: ValidationError) -> str:
    lines = [
        f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}"
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return "\n".join(one_line(line, 300) for line in lines[:_SHOWN_ERRORS])


def _failed(message: str, hint: str) -> Answer:
    return Answer(cut(f"{message}\n{hint}"), worked=False)


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: {key: _without_titles(part) for key, part in value.items()}
            if name == "properties"
            else _without_titles(value)
            for name, value in schema.items()
            if name != "title" or not isinstance(value, str)
        }
    return [_without_titles(part) for part in schema] if isinstance(schema, list) else schema
