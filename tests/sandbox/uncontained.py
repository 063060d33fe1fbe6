"""The local provider with less than this machine offers it."""

from __future__ import annotations

from typing import Any

from sandbox.local.provider import LocalSandbox
from sandbox.supervision.control_groups import Kind


class OurUser(LocalSandbox):
    """Commands run under our own user id, with no control groups but those of `kinds`."""

    def __init__(self, *given: Any, kinds: frozenset[Kind] | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._users, self._no_users = False, "switched off"
        self._only = kinds

    def _try(self) -> None:
        if self._only is not None:
            self._kinds &= self._only
        super()._try()


class WithSignals(OurUser):
    """No control group either: frozen by signals."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, kinds=frozenset(), **named)
