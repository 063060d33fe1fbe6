"""Opinions aside from the model that works: of a reviewer, who may only reject, and on whether a step is worth it.

Neither has a say in a verdict: what a reviewer lets pass is judged like anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from agent.llm import Chat, Message, ModelError, Turn
from agent.llm.account import Account
from agent.llm.asking import ask_for
from agent.skill_packs import Packs
from tools.candidate import Candidate
from tools.registry import cut
from tools.registry.marks import marked

LONGEST_DIFF = 60_000
Heard = Callable[[Sequence[Message], Turn], None]


class Review(BaseModel):
    """What a reviewer thinks of a change."""

    reject: bool
    reason: str = Field(max_length=2000)


class Triage(BaseModel):
    """Whether a step is worth asking the model that works."""

    worth_trying: bool
    reason: str = Field(max_length=2000)


@dataclass(frozen=True)
class Reviewer:
    """`told` hears of a reviewer that did not answer, so that nobody takes its silence for a look."""

    chat: Chat
    account: Account
    packs: Packs
    heard: Heard
    told: Callable[[str], None] = lambda said: None

    def objection(self, candidate: Candidate) -> str:
        """Why it rejects a candidate; empty when it does not, or cannot be asked."""
        asked = f"The change is meant to make the repository faster, in the step `{candidate.step}`."
        diff = marked("data", cut(f"{candidate.title}\n\n{candidate.rationale}\n\n{candidate.diff}", LONGEST_DIFF))
        messages: list[Message] = [
            {"role": "system", "content": self.packs.get("ratchet").section("Reviewing a candidate")},
            {"role": "user", "content": f"{asked}\n\n{diff}"},
        ]
        try:
            found = ask_for(Review, self.chat, self.account, "review", messages, self.heard)
        except ModelError as error:
            self.told(f"the reviewer cannot be asked: {error.message}")
            return ""
        if found is None:
            self.told(f"the reviewer gave no answer of use on: {candidate.title}")
        return (found.reason or "it gives no reason") if found is not None and found.reject else ""


def not_worth_it(
    chat: Chat,
    account: Account,
    opening: Sequence[Message],
    heard: Heard,
    told: Callable[[str], None] = lambda said: None,
) -> str:
    """Why a step is not worth the work of the model that works; empty when it is, or when `told` hears why nobody can
    tell.
    """
    question = (
        "Do not work on it. Say whether a capable engineer with these tools would probably find something here that is "
        "right and faster by more than the noise."
    )
    messages = [*opening, {"role": "user", "content": question}]
    try:
        found = ask_for(Triage, chat, account, "triage", messages, heard)
    except ModelError as error:
        told(f"whether the step is worth it cannot be asked: {error.message}")
        return ""
    if found is None:
        told("whether the step is worth it was asked, and no answer of use was given")
    return (found.reason or "no reason given") if found is not None and not found.worth_trying else ""
