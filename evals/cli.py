"""The command line of the evaluations: run the tasks, calibrate the judge, time the start-up.

Imports argparse and next to nothing else at start-up, like `agent.cli`. Does no work of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from agent import __version__, guard
from agent.guard import Doing


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. Raises: SystemExit from argparse (usage, --help, --version)."""
    arguments = build_parser().parse_args(argv)
    return guard.call(arguments.handler, arguments, "evals")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="evals", description="Run the tasks, and calibrate the judge.")
    parser.add_argument("--version", action="version", version=f"ratchet-agent {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="run the tasks and store a table of what was kept")
    run.add_argument("tasks", nargs="*", metavar="TASK", help="names of folders of evals/tasks (default: all)")
    run.add_argument("--budget-minutes", metavar="MINUTES", help="of each run, for looking for changes")
    run.add_argument("--sandbox", choices=("docker", "bwrap", "local"), help="(default: as a run)")
    run.add_argument(
        "--runs-dir", type=Path, metavar="DIR", help="keep the runs there, and go on with one that stopped"
    )
    run.add_argument("--stop-after", metavar="TIME", help="stop by then, such as 9m, with status 142; for one task")
    run.set_defaults(handler=_run)
    calibrate = commands.add_parser("calibrate", help="measure how often the judge errs on known effects")
    calibrate.set_defaults(handler=_calibrate)
    start_up = commands.add_parser("start-up", help="measure how long `agent --help` takes")
    start_up.set_defaults(handler=_start_up)
    kill_runs = commands.add_parser("kill-runs", help="kill runs at random moments and look what they leave behind")
    kill_runs.add_argument(
        "--sandbox", choices=("docker", "bwrap", "local"), default="docker", help="(default: docker)"
    )
    kill_runs.add_argument("--runs", type=int, default=50, metavar="N", help="how many (default: 50)")
    kill_runs.set_defaults(handler=_kill_runs)
    containment = commands.add_parser("containment", help="measure what containment costs")
    containment.set_defaults(handler=_containment)
    isa = commands.add_parser("isa", help="measure how long kernels take to compile for AMD architectures")
    isa.add_argument("kernels", nargs="+", type=Path, metavar="FILE", help="annotated kernels")
    isa.set_defaults(handler=_isa)
    prompts = commands.add_parser("prompt-size", help="count the prompts of a run that asked a model")
    prompts.add_argument("recording", type=Path, metavar="FILE", help="its exchanges.jsonl, or its folder")
    prompts.set_defaults(handler=_prompt_size)
    for command in (run, calibrate, start_up, kill_runs, containment, isa, prompts):
        command.add_argument(
            "--results-dir",
            type=Path,
            default=Path("evals/results"),
            metavar="DIR",
            help="where the results are stored (default: evals/results)",
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _run(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import run_tasks

    given = {"--budget-minutes": arguments.budget_minutes, "--sandbox": arguments.sandbox}
    options = [part for name, value in given.items() if value for part in (name, value)]
    how = run_tasks.How(tuple(options), arguments.runs_dir, arguments.stop_after)
    return run_tasks.run(tuple(arguments.tasks), arguments.results_dir, how)


def _calibrate(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import calibrate

    return calibrate.run(arguments.results_dir)


def _prompt_size(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import prompt_size

    return prompt_size.run(arguments.results_dir, arguments.recording)


def _kill_runs(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import kill_runs

    return kill_runs.run(arguments.results_dir, arguments.sandbox, arguments.runs)


def _containment(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import containment

    return containment.run(arguments.results_dir)


def _isa(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import isa_compile

    return isa_compile.run(tuple(arguments.kernels), arguments.results_dir)


def _start_up(arguments: argparse.Namespace, doing: Doing) -> int:
    from evals import start_up

    return start_up.run(arguments.results_dir)
