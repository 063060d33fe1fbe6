"""Defaults of a person, from `ratchet.toml`: which model, where it is, what may be spent.

Refuses the file of a target: an address in it would be told the person's key.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from agent.errors import WrongUsage

NAME = "ratchet.toml"
_OF_MODELS = ("model", "base_url", "reviewer", "skills", "tokens", "dollars", "price", "tool_calls")
KEYS = frozenset((*_OF_MODELS, "attempts", "budget_minutes", "memory_gib"))


def defaults(target: Path, here: Path, home: Path) -> dict[str, Any]:
    """What the file says, by the names of `RunConfig`; nothing where there is none. That in the folder `here` counts
    before that of the user's configuration, unless one of `here` and the target lies in the other: the target may be a
    part of a repository that somebody else wrote. Raises: WrongUsage.
    """
    near, theirs = here.resolve(), target.expanduser().resolve()
    apart = not near.is_relative_to(theirs) and not theirs.is_relative_to(near)
    places = [*((here / NAME,) if apart else ()), home / "ratchet" / NAME]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        return {}
    try:
        told = tomllib.loads(found.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{found} cannot be read: {error}") from error
    if unknown := sorted(set(told) - KEYS):
        can = ", ".join(sorted(KEYS))
        raise WrongUsage(f"{found} has {unknown[0]}, which it cannot have.", hint=f"It can have {can}.")
    if "skills" in told:
        if not isinstance(told["skills"], list) or not all(isinstance(each, str) for each in told["skills"]):
            raise WrongUsage(f"{found}: skills is a list of folders.")
        told["skills"] = [found.parent / Path(each).expanduser() for each in told["skills"]]
    return told


def config_home() -> Path:
    """Where a user's configuration lies."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
