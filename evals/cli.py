"""The command line of the evaluations: run the tasks, calibrate the judge, measure containment.

Imports little at start-up, like `agent.cli`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from agent import __version__, guard
from agent.guard import Doing

SANDBOXES = ("docker", "bwrap", "local")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. Raises: SystemExit from argparse (usage, --help, --version)."""
    arguments = build_parser().parse_args(argv)
    return guard.call(_do, arguments, "evals")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="evals", description="Run the tasks, and calibrate the judge.")
    parser.add_argument("--version", action="version", version=f"ratchet-agent {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="run the tasks and append a row for each to the results")
    run.add_argument("tasks", nargs="*", metavar="TASK", help="names of folders of evals/tasks (default: all)")
    run.add_argument("--budget-minutes", metavar="MINUTES", help="of each run, for looking for changes")
    run.add_argument("--sandbox", choices=SANDBOXES, help="(default: as a run)")
    run.add_argument("--runs-dir", type=Path, metavar="DIR", help="keep the runs there")
    page = commands.add_parser("results", help="write RESULTS.md again from results.jsonl")
    calibrate = commands.add_parser("calibrate", help="measure how often the judge errs on known effects")
    containment = commands.add_parser("containment", help="measure what containment costs")
    for command in (run, page, calibrate, containment):
        where = "where the results are stored (default: evals/results)"
        command.add_argument("--results-dir", type=Path, default=Path("evals/results"), metavar="DIR", help=where)
        command.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _do(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import calibrate, containment, results, run_tasks

    folder = arguments.results_dir
    match arguments.command:
        case "run":
            given = {"--budget-minutes": arguments.budget_minutes, "--sandbox": arguments.sandbox}
            options = [part for name, value in given.items() if value for part in (name, value)]
            return run_tasks.run(tuple(arguments.tasks), folder, options, arguments.runs_dir)
        case "calibrate":
            return calibrate.run(folder)
        case "containment":
            return containment.run(folder)
    results.write_page(folder)
    return 0
