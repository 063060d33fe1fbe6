"""From command-line arguments to a run: its configuration, its folders, and the consent of the user.

Defaults come from the user's `ratchet.toml` and never from a file of the target: the user's key would be sent to an
address in it. Imports are local, as in the command line.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.config import RunConfig
    from sandbox.errors import SandboxUnavailable

SETTINGS = "ratchet.toml"
BUDGET_MINUTES = 15.0
_OF_MODELS = ("model", "base_url", "reviewer", "skills", "tokens", "dollars", "price", "tool_calls")
SETTINGS_KEYS = frozenset((*_OF_MODELS, "attempts", "budget_minutes", "memory_gib"))


def config_of(arguments: argparse.Namespace) -> RunConfig:
    """The run as asked for. Raises: WrongUsage."""
    from pydantic import ValidationError

    from agent.config import RunConfig
    from agent.errors import WrongUsage
    from agent.records.run_folder import runs_dir_for

    asked = vars(arguments)  # includes how the run is shown, which is not part of its configuration
    told = {name: asked[name] for name in RunConfig.model_fields if asked.get(name) is not None}
    if "replay" in told:
        told["replay"] = _recording(arguments)
    if arguments.command in ("run", "mcp"):
        told = {**_defaults(arguments, told), **told}
        needed(arguments, ("base_url", "reviewer", "dollars", "price"), "--model", "model" in told)
    if arguments.command in ("run", "revalidate"):  # what another agent drives takes as long as that likes
        told.setdefault("budget_minutes", BUDGET_MINUTES)
    told.setdefault("runs_dir", runs_dir_for(arguments.target, Path.cwd()))
    try:
        return RunConfig(**told)
    except ValidationError as error:
        first = error.errors()[0]
        where = "--" + str(first["loc"][0]).removesuffix("_s").replace("_", "-") + ": " if first["loc"] else ""
        message = where + first["msg"].removeprefix("Value error, ")
        raise WrongUsage(message, hint="`agent run --help` lists the options.") from error


def _defaults(arguments: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """From the user's `ratchet.toml`, without the model for a run that asks none. Raises: WrongUsage."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    asks_none = "replay" in given or arguments.command == "mcp"
    found = settings(arguments.target, Path.cwd(), home)
    return {name: value for name, value in found.items() if not (asks_none and name == "model")}


def settings(target: Path, here: Path, home: Path) -> dict[str, Any]:
    """Defaults of the user, by the names of `RunConfig`; nothing where there is no file.

    The file in the folder `here` comes before that of the user's configuration, unless one of `here` and the target
    lies in the other: the target may be part of a repository that someone else wrote. Raises: WrongUsage.
    """
    import tomllib

    from agent.errors import WrongUsage

    near, theirs = here.resolve(), target.expanduser().resolve()
    apart = not near.is_relative_to(theirs) and not theirs.is_relative_to(near)
    places = [*((here / SETTINGS,) if apart else ()), home / "ratchet" / SETTINGS]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        return {}
    try:
        told = tomllib.loads(found.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{found} cannot be read: {error}") from error
    if unknown := sorted(set(told) - SETTINGS_KEYS):
        can = ", ".join(sorted(SETTINGS_KEYS))
        raise WrongUsage(f"{found} has {unknown[0]}, which it cannot have.", hint=f"It can have {can}.")
    if "skills" in told:
        if not isinstance(told["skills"], list) or not all(isinstance(each, str) for each in told["skills"]):
            raise WrongUsage(f"{found}: skills is a list of folders.")
        told["skills"] = [found.parent / Path(each).expanduser() for each in told["skills"]]
    return told


def _recording(arguments: argparse.Namespace) -> Path:
    """The path that `--replay` names, else the folder of the run of that id. Raises: RunNotFound."""
    from agent.records import run_folder

    place = Path(arguments.replay)
    return place if place.exists() else run_folder.find(arguments.replay, runs_dirs(arguments)).path


def agree(arguments: argparse.Namespace, target: Path, reasons: list[SandboxUnavailable]) -> bool:
    """Ask the user before the target's code runs uncontained; False without a terminal. Raises: Declined."""
    if arguments.yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from agent.errors import Declined

    for reason in reasons:
        print(f"{reason.message}. {reason.hint}", file=sys.stderr)
    print(
        f"So nothing contains the code in {target}: it will run as you, with your files and rights. Run it? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("Nothing was run.", hint="With --yes it does not ask.")
    return True


def runs_dirs(arguments: argparse.Namespace) -> tuple[Path, ...]:
    from agent.records.run_folder import default_runs_dirs

    return (arguments.runs_dir,) if arguments.runs_dir else default_runs_dirs(Path.cwd())


def reference(run_dir: Path) -> str:
    """The argument of `agent resume` for this run: its id where that is found from here, else its folder."""
    from agent.records.run_folder import default_runs_dirs

    return run_dir.name if run_dir.parent in default_runs_dirs(Path.cwd()) else shlex.quote(str(run_dir))


def needed(arguments: argparse.Namespace, names: Sequence[str], other: str, there: bool) -> None:
    """Refuse options that have no effect without another one. Raises: WrongUsage."""
    from agent.errors import WrongUsage

    useless = [name for name in names if getattr(arguments, name, None) not in (None, False)]
    if useless and not there:
        raise WrongUsage(f"--{useless[0].replace('_', '-')} does nothing without {other}.")
