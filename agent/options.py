"""Options that several commands take, each group in one place. Imports as little as the command line does."""

from __future__ import annotations

import argparse
from pathlib import Path

from agent.argument_types import count, count_or_zero, names, numbers, positive
from agent.step_names import STEPS


def port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=count_or_zero,
        metavar="N",
        help="serve MCP on 127.0.0.1, at a free port for 0, with a token (default: on stdio)",
    )


def run_options(run: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What a run is, whoever proposes in it."""
    add = run.add_argument
    target(run, required=required)
    add("--run-id", metavar="ID", help="name of the run and of the branch ratchet/ID (default: date and time)")
    add("--runs-dir", type=Path, metavar="DIR", help="folder for the run's files (default: .ratchet/runs)")
    add("--steps", type=names, metavar="NAMES", help="only these, separated by commas: " + ", ".join(STEPS))
    add(
        "--budget-minutes",
        type=positive,
        metavar="MINUTES",
        help="for looking for changes; then what was proven is measured as a whole",
    )
    add(
        "--memory-gib",
        type=positive,
        metavar="GIB",
        help="memory one worker may use (default: four fifths of the machine's)",
    )
    add(
        "--arch",
        type=names,
        metavar="NAMES",
        help="AMD architectures that a candidate's Triton kernels must compile for without spills, separated by commas "
        "(default: the device's own where it is one)",
    )
    add("--attempts", type=count, metavar="N", help="candidates of a step that are judged, at most (default: 12)")
    add("--seed", type=count_or_zero, metavar="N", help="for tests and audits; by default nobody knows it")
    clock = run.add_mutually_exclusive_group()
    clock.add_argument("--record-clock", type=Path, metavar="FILE", help="write every timing to FILE")
    clock.add_argument("--replay-clock", type=Path, metavar="FILE", help="judge by the timings in FILE")


def models(run: argparse.ArgumentParser) -> None:
    """Who is asked for what the playbook does not find."""
    add = run.add_argument
    add("--model", metavar="NAME", help="ask this model for what the playbook does not find (the key: OPENAI_API_KEY)")
    add("--base-url", metavar="URL", help="its OpenAI-compatible endpoint (default: OPENAI_BASE_URL)")
    add("--tokens", type=count, metavar="N", help="of prompts and answers, at most (default: 2000000)")
    add("--dollars", type=positive, metavar="N", help="of what they cost by the known prices, at most")
    add("--price", type=numbers, metavar="IN,OUT[,CACHED]", help="dollars for a million tokens (default: by a table)")
    add("--reviewer", metavar="NAME", help="model that may reject its changes (default: the same)")
    add("--tool-calls", type=count, metavar="N", help="that a model may make for one candidate (default: 80)")
    add("--replay", metavar="RUN", help="answer from the exchanges of that run, or file, instead of asking a model")
    packs(run)


def target(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What the target is, and how it is run."""
    add = parser.add_argument
    add("--target", type=Path, required=required, metavar="DIR", help="folder of the repository; it is never changed")
    add("--entry", required=required, metavar="FILE", help="script that shows how the target is used")
    how(parser)


def how(parser: argparse.ArgumentParser) -> None:
    """Where and how the target's code runs."""
    add = parser.add_argument
    add("--python", type=Path, metavar="FILE", help="interpreter for the target (default: the active environment's)")
    add(
        "--sandbox",
        choices=("auto", "docker", "bwrap", "local"),
        help="where its code runs (default: auto, which takes docker, else bwrap; local contains nothing)",
    )
    add("--image", metavar="NAME", help="container image to run it in (default: this machine's own software)")
    add(
        "--mount",
        dest="mounts",
        type=Path,
        action="append",
        metavar="PATH",
        help="what it may read besides, such as weights; may be repeated",
    )
    add("--gpu", type=count_or_zero, metavar="N", help="GPU to use (default: the first that is visible)")
    add(
        "--time-limit",
        dest="time_limit_s",
        type=positive,
        metavar="SECONDS",
        help="for one start of the entry (default: 120)",
    )
    add("--threads", type=count, metavar="N", help="CPU threads of a timed worker, and cores that it has (default: 1)")
    add("--yes", action="store_true", help="where nothing contains the target, run it uncontained without asking")


def packs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--skills",
        type=Path,
        action="append",
        metavar="DIR",
        help="a skill pack of yours, or a folder of packs; may be repeated",
    )
