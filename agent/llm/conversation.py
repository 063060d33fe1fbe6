"""A conversation about one step: a model works with the tools until it submits a candidate, gives up, or may not go on.

What tools say is marked as data. Only a candidate comes out of it, which is judged like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, ValidationError

from agent.llm import BudgetReached, Chat, ContextFull, Message, NotRecorded, ToolCall, Turn
from agent.llm.account import Account
from agent.llm.opinions import Reviewer
from agent.proposers import PastAttempt
from agent.workbench import Workbench
from tools.candidate import Candidate
from tools.registry import Answer, Registry, Request, Tool, ToolFault
from tools.registry.marks import END_OF_DATA, as_data, marked

STUMBLES = 3  # answers in a row that call no tool, or are cut off
REPEATS = 4  # the same call with the same answer
KEPT_WHOLE = 12  # messages from the end that stay when a conversation gets too long
SHORT = 400  # characters that stay of the ones before


class Submit(Request):
    """Hand your candidate in to be judged: checked afresh, then measured against the stack. One idea each."""

    title: str = Field(min_length=3, max_length=120)
    """What it does, in a few words."""
    rationale: str = Field(min_length=3, max_length=2000)
    """Why it should be faster, and why it computes the same."""
    predicted_gain: float | None = Field(default=None, gt=0, lt=1000)
    """The speedup of a whole call that you expect, such as 1.08."""
    enables: str = Field(default="", max_length=300)
    """Where it gains nothing by itself: what it makes possible."""


class GiveUp(Request):
    """End this step: nothing that you can think of would be both right and faster."""

    reason: str = Field(min_length=3, max_length=1000)
    """What you looked at, and why it does not help."""


HANDING_IN = (Tool("submit", Submit), Tool("give_up", GiveUp))


@dataclass
class Conversation:
    """`messages` begins with what the model is told. `next_candidate` is asked again after each verdict."""

    chat: Chat
    registry: Registry
    bench: Workbench
    account: Account
    step: str
    messages: list[Message]
    most_calls: int = 80
    """Of tools, for one candidate."""
    over: Callable[[], str] = lambda: ""
    """Why there is no time for more; empty while there is."""
    reviewer: Reviewer | None = None
    ended: str = ""
    """Why no further candidate will come."""
    _stumbles: int = 0
    _tokens: int = 0  # since a candidate was last handed in
    _dollars: float | None = 0.0  # the same; None where that is not known
    _submitted: Candidate | None = None  # last, and not reviewed
    _seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._all = self.registry.with_more(
            [Tool("submit", Submit, self._submit), Tool("give_up", GiveUp, self._give_up)]
        )

    def next_candidate(self, attempts: Sequence[PastAttempt] = ()) -> Candidate | None:
        """None when the conversation has ended. `attempts` are those of the run until now. Raises: ModelError."""
        if self._submitted is not None:
            self._tell_outcome([past for past in attempts if past.diff_digest == self._submitted.digest])
        self._submitted, made = None, 0
        self._seen.clear()
        while not self.ended and self._submitted is None:
            turn = self._ask()
            if turn is None:
                break
            if turn.calls and turn.finish != "length":
                self._stumbles = 0
                for call in turn.calls:
                    made += 1
                    self._answer(call, made)
            else:
                self._stumble(turn)
        found: Candidate | None = self._submitted
        if found is None or self.reviewer is None:
            return found
        return found.model_copy(update={"objection": self.reviewer.objection(found)})

    def _tell_outcome(self, judged: Sequence[PastAttempt]) -> None:
        said = "Your candidate was not judged: the stack has changed since you made it, or the same was judged before."
        if judged:
            said = judged[-1].told()
        go_on = "Go on with another idea, or mend this one; `give_up` ends the step."
        self.messages.append({"role": "user", "content": f"{said}\n{self._renewed()}\n{go_on}"})

    def _renewed(self) -> str:
        try:
            renewed = self.bench.renew()
        except ToolFault as fault:
            return f"The stack has changed; your files are still as you left them.\n{marked('data', str(fault))}"
        if renewed:
            return "The stack has changed: your files are those of its new top, without anything that you left over."
        return "Your files are as you left them; `reset` takes your changes back."

    # -- asking

    def _ask(self) -> Turn | None:
        for shortened in (False, True):
            if shortened:
                self._shorten()
            if why := self.over():
                self.ended = why
                return None
            try:
                turn, tokens, dollars = self.account.ask(self.step, self.chat, self.messages, self._all.as_functions())
            except ContextFull as error:
                if shortened:
                    self.ended = error.message
                    return None
                continue
            except (BudgetReached, NotRecorded) as error:
                self.ended = error.message
                return None
            self._tokens += tokens
            self._dollars = None if self._dollars is None or dollars is None else self._dollars + dollars
            self.messages.append(turn.as_message())
            return turn
        raise AssertionError("the second time returns")

    def _shorten(self) -> None:
        """Leave out most of what tools said long ago, which they can say again."""
        for message in self.messages[2:-KEPT_WHOLE]:
            content = message.get("content")
            if message["role"] == "tool" and content and len(content) > SHORT:
                left_out = "[… left out to make room; call the tool again if need be …]"
                message["content"] = f"{content[:SHORT]}\n{left_out}\n{END_OF_DATA}"

    # -- answering

    def _answer(self, call: ToolCall, made: int) -> None:
        if self._submitted is not None:
            said = "not run: the step's candidate was handed in before it"
        elif self.ended:
            said = f"not run: {self.ended}"
        elif why := self.over():
            said = self.ended = why
        elif made > self.most_calls:
            said = self.ended = f"{self.most_calls} calls of tools were made for one candidate, which is the limit"
        else:
            answer = self._all.call(self.bench, call.name, call.arguments)
            said, times = answer.text, self._times(call, answer)
            if times >= 2 * REPEATS:
                self.ended = f"the model repeats itself: {call.name} with the same arguments and the same answer"
            elif times >= REPEATS:
                said += "\n[You have asked this before, and the answer is the same. Try something else, or submit.]"
        name = call.name if call.name in self._all.tools else "unknown"
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": as_data(name, said)})

    def _times(self, call: ToolCall, answer: Answer) -> int:
        """How often this was asked and answered since something else was changed, after which the same question is
        another one. In a replay, where nothing is looked at, all answers are alike and nothing is counted.
        """
        if not self._all.looks:
            return 0
        asked = (call.name, call.arguments, answer.text)
        if answer.worked and not self._all.tools[call.name].looks_only and asked not in self._seen:
            self._seen.clear()
        self._seen[asked] += 1
        return self._seen[asked]

    def _stumble(self, turn: Turn) -> None:
        self._stumbles += 1
        why = {
            "length": "Your answer was cut off. Call one tool at a time, and write files in smaller parts.",
            "content_filter": "Your answer was withheld by a filter. Go on without what caused that.",
        }.get(turn.finish, "Call a tool: submit hands your candidate in, give_up ends this step.")
        for call in turn.calls:  # each call must have an answer
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": "not run: it was cut off"})
        self.messages.append({"role": "user", "content": why})
        if self._stumbles >= STUMBLES:
            self.ended = f"{STUMBLES} answers in a row called no tool or were cut off"

    def _submit(self, bench: Any, request: Submit) -> str:
        try:
            found = self.bench.candidate(request.title, request.rationale, request.predicted_gain, request.enables)
        except ValidationError as error:
            raise ToolFault(f"That is no candidate: {error.errors()[0]['msg']}") from error
        self._submitted = found.model_copy(update={"tokens": self._tokens, "dollars": self._dollars})
        self._tokens, self._dollars = 0, 0.0
        return "handed in; the verdict follows"

    def _give_up(self, bench: Any, request: GiveUp) -> str:
        self.ended = f"the model gave up: {request.reason}"
        return "the step is over"
