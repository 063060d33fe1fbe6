"""The options of all commands, each once, and the types of their values. Imports as little as the command line does."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.step_names import STEPS

SANDBOXES = ("auto", "docker", "bwrap", "local")
STEP_LIST = "The steps are " + ", ".join(STEPS) + "."


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(each) for each in text.split(","))


def image_name(text: str) -> str:
    if not re.fullmatch(r"(?:[a-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*:\w[\w.-]{0,127}", text):
        raise argparse.ArgumentTypeError(f"{text} is no name for an image with a tag; one looks like mine/rocm:1")
    return text


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and re.fullmatch(r"[A-Za-z_]\w*", name)):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def file_to_write(text: str) -> Path:
    """Checked before the work whose result is written there."""
    path = Path(text)
    if not os.access(path.parent, os.W_OK | os.X_OK) or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent} to write to")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder")
    return path


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def count_or_zero(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _value(metavar: str, help: str, type: Callable[[str], Any] = str, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": help, "type": type, **more}


def _flag(help: str) -> dict[str, Any]:
    return {"action": "store_true", "help": help}


_EVENTS = "print events to stdout, one JSON object a line"
_PACKS = "a further skill pack, or a folder of packs; may be repeated"
_READABLE = "file or folder that it may read, such as weights; may be repeated"
_START = "longest time for one start of the entry, in seconds (default: 120)"
OPTIONS: dict[str, dict[str, Any]] = {
    "--debug": _flag("show tracebacks"),
    "--json": _flag(_EVENTS),
    "--runs-dir": _value("DIR", "folder with the runs (default: .ratchet/runs)", Path),
    "--port": _value(
        "N", "serve MCP over HTTP on 127.0.0.1 at this port, 0 for a free one (default: on stdio)", count_or_zero
    ),
    # the target, and how it runs
    "--target": _value("DIR", "repository to work on; it is never changed", Path),
    "--entry": _value("FILE", "script of the repository that shows how it is used"),
    "--python": _value("FILE", "Python that runs the code (default: that of the active environment)", Path),
    "--sandbox": _value(
        "NAME", "auto, docker, bwrap, or local, which contains nothing (default: auto)", choices=SANDBOXES
    ),
    "--image": _value("NAME", "container image to run it in (default: the software of this machine)"),
    "--mount": _value("PATH", _READABLE, Path, dest="mounts", action="append"),
    "--gpu": _value("N", "number of the GPU to use (default: the first visible one)", count_or_zero),
    "--time-limit": _value("N", _START, positive, dest="time_limit_s"),
    "--threads": _value("N", "CPU threads and cores of a timed process (default: 1)", count),
    "--yes": _flag("where no sandbox works, run the code without one"),
    # the run
    "--budget-minutes": _value("N", "time for all of it, in minutes (default: 15)", positive),
    "--steps": _value("NAMES", "steps to run, separated by commas (default: all)", names),
    "--attempts": _value("N", "most candidates to judge in one step (default: 12)", count),
    "--arch": _value("NAMES", "AMD GPUs that Triton kernels must compile for (default: this one)", names),
    "--memory-gib": _value("N", "memory of one process, in GiB (default: 80%% of all)", positive),
    "--run-id": _value("ID", "name of the run and of its branch ratchet/ID (default: date and time)"),
    "--seed": _value("N", "seed of the test inputs (default: secret)", count_or_zero),
    "--record-clock": _value("FILE", "write every timing to FILE", Path),
    "--replay-clock": _value("FILE", "read timings from FILE instead of measuring", Path),
    # a model that is asked for what the playbook does not find
    "--model": _value("NAME", "ask this model for further changes; OPENAI_API_KEY holds its key"),
    "--base-url": _value("URL", "OpenAI-compatible endpoint of the model (default: OPENAI_BASE_URL)"),
    "--reviewer": _value("NAME", "model that may reject changes of the first (default: the same)"),
    "--tokens": _value("N", "tokens to spend on models (default: 2000000)", count),
    "--dollars": _value("N", "dollars to spend on models (default: no limit)", positive),
    "--price": _value("IN,OUT", "dollars for a million tokens; IN,OUT,CACHED is possible too", numbers),
    "--tool-calls": _value("N", "most tool calls for one candidate (default: 80)", count),
    "--replay": _value("RUN", "use the recorded answers of a run instead of asking a model"),
    "--skills": _value("DIR", _PACKS, Path, action="append"),
}
HOW = ("--python", "--sandbox", "--image", "--mount", "--gpu", "--time-limit", "--threads", "--yes")
THE_RUN = ("--budget-minutes", "--steps", "--attempts", "--arch", "--memory-gib", "--run-id")
MODEL = (
    "--model",
    "--base-url",
    "--reviewer",
    "--tokens",
    "--dollars",
    "--price",
    "--tool-calls",
    "--replay",
    "--skills",
)


def take(parser: argparse._ActionsContainer, *options: str, **changes: Any) -> None:
    """Add options as they stand in the table, with these changes."""
    for name in options:
        parser.add_argument(name, **{**OPTIONS[name], **changes})


def of_a_run(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What a run is, whoever proposes in it."""
    parser.epilog = STEP_LIST
    of_a_target(parser, required=required)
    run = parser.add_argument_group("the run")
    take(run, *THE_RUN)
    take(run, "--runs-dir", help="folder for the files of the run (default: .ratchet/runs)")
    audits = parser.add_argument_group("audits")
    take(audits, "--seed")
    take(audits.add_mutually_exclusive_group(), "--record-clock", "--replay-clock")


def of_a_target(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What the target is, and how it is run."""
    group = parser.add_argument_group("the target")
    take(group, "--target", "--entry", required=required)
    take(group, *HOW)
