"""Workers that were prepared for one comparison and not timed in it, for the next one of the same builds.

On a GPU, starting them is most of what a comparison takes. Does not hand on what was timed: numbers of a screen are
no part of a confirmation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.judging.clock import Group, Session


@dataclass
class Held:
    """To be closed."""

    _groups: list[Group] = field(default_factory=list)
    _of: tuple[object, ...] = ()

    def take(self, session: Session, groups: list[Group]) -> None:
        """Those that a session like this one has prepared."""
        self.close()
        self._groups, self._of = groups, _described(session)

    def give(self, session: Session) -> list[Group]:
        """Those that fit this session; others are ended."""
        if self._of != _described(session):
            self.close()
        groups, self._groups = self._groups, []
        return groups

    def close(self) -> None:
        while self._groups:
            self._groups.pop().close()


def _described(session: Session) -> tuple[object, ...]:
    """What its workers depend on."""
    return session.builds, session.malloc, session.turns
