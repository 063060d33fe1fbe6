"""A stand-in for `RunContext`: one object is all of its owners, and has only what a test gives it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def one_context(**given: Any) -> Any:
    ctx = SimpleNamespace(**given)
    ctx.builds = ctx.records = ctx.proposals = ctx.display = ctx
    return ctx
