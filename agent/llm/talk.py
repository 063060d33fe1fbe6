"""One step's conversation on one workbench: what is handed in, and what becomes of it, from one attempt to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.llm.conversation import Conversation
from agent.llm.opinions import Reviewer
from agent.proposers import PastAttempt
from agent.proposers.past import verdict_on
from agent.workbench import Workbench
from tools.candidate import Candidate
from tools.registry import ToolFault
from tools.registry.marks import marked


@dataclass
class Talk:
    """`next_candidate` is asked again after each verdict."""

    conversation: Conversation
    bench: Workbench
    reviewer: Reviewer | None = None
    _handed_in: str = ""  # the digest of the last one

    @property
    def ended(self) -> str:
        return self.conversation.ended

    def next_candidate(self, attempts: Sequence[PastAttempt]) -> Candidate | None:
        """None when the conversation has ended. Raises: ModelError."""
        if self._handed_in:
            with self.conversation.one_by_one:
                self._tell_outcome([past for past in attempts if past.diff_digest == self._handed_in])
        found = self.conversation.next_candidate()
        self._handed_in = found.digest if found is not None else ""
        if found is None or self.reviewer is None:
            return found
        return found.model_copy(update={"objection": self.reviewer.objection(found)})

    def _tell_outcome(self, judged: Sequence[PastAttempt]) -> None:
        said = "Your candidate was not judged: the stack has changed since you made it, or the same was judged before."
        if judged:
            said = verdict_on(judged[-1])
        go_on = "Go on with another idea, or mend this one; `give_up` ends the step."
        self.conversation.tell(f"{said}\n{self._renewed()}\n{go_on}")

    def _renewed(self) -> str:
        try:
            renewed = self.bench.renew()
        except ToolFault as fault:
            return f"The stack has changed; your files are still as you left them.\n{marked('data', str(fault))}"
        if renewed:
            return "The stack has changed: your files are those of its new top, without anything that you left over."
        return "Your files are as you left them; `reset` takes your changes back."
