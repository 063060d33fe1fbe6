"""How large the prompts of a run are, by step, from the recording of its exchanges with a model.

Counts characters, which are the same for every model; what a model makes of them in tokens it says itself, if at all.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agent import environment
from agent.errors import WrongUsage
from agent.llm import CHARACTERS_A_TOKEN
from agent.llm.conversation import HANDING_IN
from agent.llm.recording import EXCHANGES
from agent.records import run_folder
from agent.workbench import REGISTRY
from evals.result_file import ResultFile


class Size(BaseModel):
    """Of the conversation of one step."""

    step: str
    rules: int
    """Characters that are the same in every step."""
    task: int
    """Characters of the step, its profile and what was tried."""
    largest: int
    """Characters of the longest request, tools included."""
    requests: int


class PromptSizes(BaseModel):
    """One execution of `evals prompt-size`."""

    date: datetime
    command: list[str]
    environment: environment.Environment
    tools: int = 0
    """Characters of the descriptions of all tools, sent with each request."""
    sizes: list[Size] = Field(default_factory=list)

    def page(self) -> str:
        tools = f"{self.tools:,} characters (some {self.tools / CHARACTERS_A_TOKEN:,.0f} tokens)"
        lines = [
            "# Prompts",
            "",
            f"Counted {self.date:%Y-%m-%d} in a recording. Command: `{' '.join(self.command)}`. The tools take {tools} "
            "of each request. Rules and tools are the same in every request of a run, so that a cache can hold them.",
            "",
            "| step | rules | task | first request, with tools | longest request | requests |",
            "| --- " * 6 + "|",
        ]
        for size in self.sizes:
            first = size.rules + size.task + self.tools
            told = f"{first:,}, some {first / CHARACTERS_A_TOKEN:,.0f} tokens"
            lines.append(
                f"| {size.step} | {size.rules:,} | {size.task:,} | {told} | {size.largest:,} | {size.requests} |"
            )
        return "\n".join(lines) + "\n"


def run(results_dir: Path, recording: Path) -> int:
    """Count and store; returns 0. Raises: WrongUsage."""
    file = recording / EXCHANGES if recording.is_dir() else recording
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{file} is no recording that can be read: {error}") from error
    tools = len(json.dumps([tool.as_function() for tool in (*REGISTRY.tools.values(), *HANDING_IN)]))
    found = PromptSizes(
        date=datetime.now(UTC),
        command=run_folder.this_command(),
        environment=environment.describe(),
        tools=tools,
        sizes=sizes(rows, tools),
    )
    stored = ResultFile(results_dir, "prompt-size", found.date)
    stored.write(found, found.page())
    print(f"{found.page()}\n{stored}")
    return 0


def sizes(rows: list[dict[str, Any]], tools: int) -> list[Size]:
    """One for each conversation with the model that works."""
    found = []
    for step in dict.fromkeys(row["step"] for row in rows if ":" not in row["step"]):
        mine = [row for row in rows if row["step"] == step]
        rules, task = (len(message["content"]) for message in mine[0]["messages"][:2])
        sent = largest = 0
        for row in mine:
            sent += len(json.dumps(row["messages"]))
            largest = max(largest, sent + tools)
            sent += len(json.dumps(row["turn"]))
        found.append(Size(step=step, rules=rules, task=task, largest=largest, requests=len(mine)))
    return found
