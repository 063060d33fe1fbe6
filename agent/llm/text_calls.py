"""Tool calls for models that have none of their own: written as JSON in their answers, and answered in messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.llm import Chat, Message, ToolCall, Turn
from agent.llm.opinions import objects_in
from agent.llm.prompt import in_text
from agent.skill_packs import Packs


@dataclass(frozen=True)
class InText:
    """A `Chat` that offers tools in words to a chat without them."""

    chat: Chat
    packs: Packs

    def ask(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Turn:
        """Raises: ModelError."""
        if not tools:
            return self.chat.ask(messages, ())
        turn = self.chat.ask(_in_words(messages, in_text(self.packs, tools)), ())
        call = _call_in(turn.text, len(messages))
        if call is None:
            return turn
        finish = "tool_calls" if turn.finish == "stop" else turn.finish
        return turn.model_copy(update={"text": turn.text[: call[0]].rstrip(), "calls": [call[1]], "finish": finish})


def _in_words(messages: Sequence[Message], how: str) -> list[Message]:
    """Calls as the model wrote them, answers as messages of the user; two of one role in a row become one."""
    said = list[Message]()
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "tool":
            role = "user"
        for call in message.get("tool_calls") or ():
            function = call["function"]
            written = {"tool": function["name"], "arguments": json.loads(function["arguments"])}
            content += f"\n```json\n{json.dumps(written)}\n```"
        if said and said[-1]["role"] == role:
            said[-1] = {"role": role, "content": f"{said[-1]['content']}\n\n{content}"}
        else:
            said.append({"role": role, "content": content})
    said[0] = {**said[0], "content": f"{said[0]['content']}\n\n{how}"}
    return said


def _call_in(text: str, number: int) -> tuple[int, ToolCall] | None:
    """The last call that an answer holds, as it was told to make it, and where it begins: what stands before may be
    thought about, or quoted.
    """
    found = [(begin, told) for begin, _, told in objects_in(text) if isinstance(told.get("tool"), str)]
    if not found:
        return None
    begin, told = found[-1]
    arguments = json.dumps(told.get("arguments") or {})
    before = text[:begin].rstrip()
    begin = len(before.removesuffix("```json").removesuffix("```"))
    return begin, ToolCall(id=f"call_{number}", name=told["tool"], arguments=arguments)
