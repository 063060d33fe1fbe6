"""Several proposers, each asked when those before it have nothing left: the playbook first, a model on what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.proposers import ProposalRequest, Proposer
from tools.candidate import Candidate, Site


class InTurn:
    """A `Proposer`. None of them is asked once `over` says why."""

    def __init__(self, proposers: Sequence[Proposer], over: Callable[[], str] = lambda: "") -> None:
        self.proposers, self._over = proposers, over
        self.name = " and ".join(each.name for each in proposers)

    def propose(self, request: ProposalRequest) -> tuple[list[Candidate], str]:
        if why := self._over():
            return [], why
        reasons = []
        for each in self.proposers:
            found, reason = each.propose(request)
            if found:
                return found, ""
            reasons.append(reason)
        return [], "; ".join(dict.fromkeys(filter(None, reasons)))

    def expects(self, request: ProposalRequest) -> bool:
        return not self._over() and any(each.expects(request) for each in self.proposers)

    def sites(self, request: ProposalRequest) -> list[Site]:
        return [site for each in self.proposers for site in each.sites(request)]

    def advice(self, request: ProposalRequest) -> list[str]:
        return list(dict.fromkeys(line for each in self.proposers for line in each.advice(request)))
