"""Options that several commands take, each group in one place. Imports as little as the command line does."""

from __future__ import annotations

import argparse
from pathlib import Path

from agent.argument_types import count, count_or_zero, names, numbers, positive
from agent.step_names import STEPS

SANDBOXES = ("auto", "docker", "bwrap", "local")
STEP_LIST = "The steps are " + ", ".join(STEPS) + "."
_SANDBOX = "auto, docker, bwrap, or local, which contains nothing (default: auto)"


def debug(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print events to stdout, one JSON object a line")


def port(parser: argparse.ArgumentParser) -> None:
    help = "serve MCP over HTTP on 127.0.0.1 at this port, 0 for a free one (default: on stdio)"
    parser.add_argument("--port", type=count_or_zero, metavar="N", help=help)


def runs_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", help="folder with the runs (default: .ratchet/runs)")


def budget(parser: argparse._ActionsContainer) -> None:
    help = "time to look for changes, in minutes (default: no limit)"
    parser.add_argument("--budget-minutes", type=positive, metavar="N", help=help)


def run_id(parser: argparse._ActionsContainer) -> None:
    help = "name of the run and of its branch ratchet/ID (default: date and time)"
    parser.add_argument("--run-id", metavar="ID", help=help)


def run_options(run: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What a run is, whoever proposes in it."""
    run.epilog = STEP_LIST
    target(run, required=required)
    group = run.add_argument_group("the run")
    add = group.add_argument
    budget(group)
    add("--steps", type=names, metavar="NAMES", help="steps to run, separated by commas (default: all)")
    add("--attempts", type=count, metavar="N", help="most candidates to judge in one step (default: 12)")
    add("--arch", type=names, metavar="NAMES", help="AMD GPUs that Triton kernels must compile for (default: this one)")
    add("--memory-gib", type=positive, metavar="N", help="memory of one process, in GiB (default: 80%% of all)")
    run_id(group)
    add("--runs-dir", type=Path, metavar="DIR", help="folder for the files of the run (default: .ratchet/runs)")
    audits = run.add_argument_group("audits")
    audits.add_argument("--seed", type=count_or_zero, metavar="N", help="seed of the test inputs (default: secret)")
    clock = audits.add_mutually_exclusive_group()
    clock.add_argument("--record-clock", type=Path, metavar="FILE", help="write every timing to FILE")
    clock.add_argument("--replay-clock", type=Path, metavar="FILE", help="read timings from FILE instead of measuring")


def models(run: argparse.ArgumentParser) -> None:
    """Who is asked for what the playbook does not find."""
    group = run.add_argument_group("a model")
    add = group.add_argument
    add("--model", metavar="NAME", help="ask this model for further changes; OPENAI_API_KEY holds its key")
    add("--base-url", metavar="URL", help="OpenAI-compatible endpoint of the model (default: OPENAI_BASE_URL)")
    add("--reviewer", metavar="NAME", help="model that may reject changes of the first (default: the same)")
    add("--tokens", type=count, metavar="N", help="tokens to spend on models (default: 2000000)")
    add("--dollars", type=positive, metavar="N", help="dollars to spend on models (default: no limit)")
    add("--price", type=numbers, metavar="IN,OUT", help="dollars for a million tokens; IN,OUT,CACHED is possible too")
    add("--tool-calls", type=count, metavar="N", help="most tool calls for one candidate (default: 80)")
    add("--replay", metavar="RUN", help="use the recorded answers of a run instead of asking a model")
    packs(group)


def target(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What the target is, and how it is run."""
    group = parser.add_argument_group("the target")
    add = group.add_argument
    add("--target", type=Path, required=required, metavar="DIR", help="repository to work on; it is never changed")
    add("--entry", required=required, metavar="FILE", help="script of the repository that shows how it is used")
    how(group)


def how(parser: argparse._ActionsContainer) -> None:
    """Where and how the target's code runs."""
    add = parser.add_argument
    python(parser)
    sandbox(parser)
    add("--image", metavar="NAME", help="container image to run it in (default: the software of this machine)")
    readable = "file or folder that it may read, such as weights; may be repeated"
    add("--mount", dest="mounts", type=Path, action="append", metavar="PATH", help=readable)
    add("--gpu", type=count_or_zero, metavar="N", help="number of the GPU to use (default: the first visible one)")
    limit = "longest time for one start of the entry, in seconds (default: 120)"
    add("--time-limit", dest="time_limit_s", type=positive, metavar="N", help=limit)
    add("--threads", type=count, metavar="N", help="CPU threads and cores of a timed process (default: 1)")
    yes(parser)


def python(parser: argparse._ActionsContainer) -> None:
    help = "Python that runs the code (default: that of the active environment)"
    parser.add_argument("--python", type=Path, metavar="FILE", help=help)


def sandbox(parser: argparse._ActionsContainer, default: str | None = None) -> None:
    parser.add_argument("--sandbox", choices=SANDBOXES, metavar="NAME", default=default, help=_SANDBOX)


def yes(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--yes", action="store_true", help="where no sandbox works, run the code without one")


def packs(parser: argparse._ActionsContainer) -> None:
    help = "a further skill pack, or a folder of packs; may be repeated"
    parser.add_argument("--skills", type=Path, action="append", metavar="DIR", help=help)
