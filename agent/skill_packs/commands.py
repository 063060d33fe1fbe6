"""`agent skills`: list packs, validate them, install them for an agent, export them for another."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import WrongUsage
from agent.llm.conversation import HANDING_IN
from agent.llm.prompt import METHOD, rules
from agent.skill_packs import Pack, Packs, PackUnusable, found_in
from agent.step_names import STEPS
from agent.workbench import REGISTRY

EXPORT_FORMAT = 1
# below the repository, or the home of a user: where each agent looks (code.claude.com/docs/en/skills,
# developers.openai.com/codex/skills)
PLACES = {"claude": Path(".claude", "skills"), "codex": Path(".agents", "skills")}


def show(arguments: argparse.Namespace) -> int:
    for pack in Packs.of(arguments.skills or ()).packs:
        print(f"{pack.name} ({pack.folder})")
        print(f"  {pack.description}")
        print(f"  {len(pack.files())} files")
    return 0


def validate(arguments: argparse.Namespace) -> int:
    """By the reference validator of the format. Raises: PackUnusable, with what it found."""
    try:
        from skills_ref import validate as of_the_format  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise PackUnusable(
            f"Validating needs the package {error.name}, which is not installed.",
            hint="Install `ratchet-agent[skills]` beside Ratchet.",
        ) from error
    wrong = list[str]()
    for pack in found_in(arguments.folder) if arguments.folder else Packs.of().packs:
        found = of_the_format(pack.folder)
        print(f"{pack.name}: {'; '.join(found) or 'valid'}")
        wrong += [f"{pack.name}: {each}" for each in found]
    if wrong:
        raise PackUnusable(f"Not valid: {wrong[0]}", hint="agentskills.io/specification says what a pack is.")
    return 0


def install(arguments: argparse.Namespace) -> int:
    """`--for` names one of `PLACES`, or a folder that is to hold the packs."""
    if arguments.user and arguments.agent not in PLACES:
        raise WrongUsage(f"--user does nothing for the folder {arguments.agent}.")
    root = Path.home() if arguments.user else Path.cwd()
    into = root / PLACES[arguments.agent] if arguments.agent in PLACES else Path(arguments.agent)
    for line in install_into(into, Packs.of(arguments.skills or ()).packs, replace=arguments.replace):
        print(line)
    return 0


def install_into(into: Path, packs: Sequence[Pack], *, replace: bool = False) -> list[str]:
    """Copy packs into a folder; says what was done with each. What was changed there is overwritten only with
    `replace`. Raises: PackUnusable, OSError.
    """
    told = []
    for pack in packs:
        there = into / pack.name
        if there.is_symlink() or (there.exists() and not there.is_dir()):
            raise PackUnusable(f"{there} is in the way.", hint="Move it away first.")
        same = there.exists() and Pack(there).contents() == pack.contents()
        if there.exists() and not same and not replace:
            raise PackUnusable(f"{there} is there already, and differs.", hint="With --replace it is written over.")
        if not same:
            shutil.rmtree(there, ignore_errors=True)
            for name, data in pack.contents().items():
                (there / name).parent.mkdir(parents=True, exist_ok=True)
                (there / name).write_bytes(data)
        told.append(f"{pack.name}: {'was there already' if same else 'installed'} in {there}")
    return told


def export(arguments: argparse.Namespace) -> int:
    text = json.dumps(exported(Packs.of(arguments.skills or ())), indent=1) + "\n"
    if arguments.output is None:
        print(text, end="")
    else:
        arguments.output.write_text(text, encoding="utf-8")
        print(f"{arguments.output}: instructions and tools for chat.completions and responses")
    return 0


def exported(packs: Packs) -> dict[str, Any]:
    """What any other agent needs: instructions, and the tools as JSON Schema, `tools` for chat.completions and
    `functions` for responses. The server is `agent mcp`.
    """
    tools = [tool.as_function() for tool in (*REGISTRY.tools.values(), *HANDING_IN)]
    method = packs.get(METHOD)
    return {
        "format": EXPORT_FORMAT,
        "instructions": rules(packs),
        "steps": {step: method.section(step) for step in STEPS},
        "tools": tools,
        "functions": [{"type": "function", **tool["function"]} for tool in tools],
        "mcp": {"command": "agent", "args": ["mcp"]},
    }
