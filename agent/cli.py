"""The command line: what can be asked for, and who does it.

Imports argparse and next to nothing else; each subcommand imports what it needs when it is called, so that
`agent --help` answers at once. Does no work of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent import __version__, given, guard, options
from agent.argument_types import count, file_to_write, image_name, pair, positive
from agent.guard import Doing


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. Raises: SystemExit from argparse (usage, --help, --version)."""
    arguments = build_parser().parse_args(argv)
    return guard.call(arguments.handler, arguments, "agent")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent",
        description="Make a PyTorch repository faster, one proven change at a time.",
        epilog="Exit statuses are listed in docs/exit-status.md.",
    )
    parser.add_argument("--version", action="version", version=f"ratchet-agent {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_resume(commands)
    _add_mcp(commands)
    _add_revalidate(commands)
    _add_profile(commands)
    for name, summary in (
        ("verify", "check whether a change computes the same"),
        ("measure", "judge a change as a run would: is it right, and faster?"),
    ):
        _add_judge(commands, name, summary)
    runs = _command(commands, "runs", _runs, "list the runs and how they stand")
    runs.add_argument("--runs-dir", type=Path, metavar="DIR", help="folder of the runs")
    _command(commands, "graph", _graph, "print the graph of a run as Mermaid")
    doctor = _command(commands, "doctor", _doctor, "check this machine, and a target when one is given")
    doctor.add_argument("--target", type=Path, metavar="DIR", help="folder of the repository")
    doctor.add_argument("--entry", metavar="FILE", help="script that shows how the target is used")
    doctor.add_argument("--python", type=Path, metavar="FILE", help="interpreter for the target (default: as a run)")
    doctor.add_argument("--sandbox", choices=("docker", "bwrap", "local"), help="what to check (default: as a run)")
    doctor.add_argument("--image", metavar="NAME", help="container image to check")
    _add_image(commands)
    _add_isa(commands)
    _add_skills(commands)
    return parser


def _command(commands: Any, name: str, handler: guard.Handler, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary + ".")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(handler=handler)
    return parser


def _add_run(commands: Any) -> None:
    run = _command(commands, "run", _run, "make a target faster")
    options.run_options(run)
    options.models(run)
    run.add_argument("--json", action="store_true", help="events on stdout, one JSON object a line")


def _add_mcp(commands: Any) -> None:
    mcp = _command(commands, "mcp", _mcp, "make a target faster with an agent of yours, which drives the run over MCP")
    options.run_options(mcp, required=False)
    options.packs(mcp)
    options.port(mcp)


def _add_profile(commands: Any) -> None:
    profile = _command(commands, "profile", _profile, "show where the time of a target's call goes")
    add = profile.add_argument
    options.target(profile)
    add("--calls", type=count, default=10, metavar="N", help="calls of each case to profile (default: 10)")
    add(
        "--counters",
        choices=("none", "launches", "counters", "all"),
        default="counters",
        help="how far AMD's own tools look where there are any: how kernels were launched, rocprofv3's counters in "
        "some runs more (default), or rocprof-compute's as well in some 30 more",
    )
    add("--html", type=file_to_write, metavar="FILE", help="write a page, one file that needs nothing else")
    add("--trace", type=file_to_write, metavar="FILE", help="keep the trace, for Perfetto")
    add("--json", dest="json_file", type=file_to_write, metavar="FILE", help="write all of it as JSON")


def _add_judge(commands: Any, name: str, summary: str) -> None:
    judge = _command(commands, name, partial(_judge, name == "measure"), summary)
    options.target(judge)
    judge.add_argument(
        "--change",
        type=Path,
        required=True,
        metavar="PATH",
        help="a patch, or a folder with another version of the repository",
    )
    judge.add_argument("--json", action="store_true", help="the verdict with its evidence as JSON")


def _add_resume(commands: Any) -> None:
    resume = _command(commands, "resume", _resume, "go on with a run that was interrupted")
    resume.add_argument("run", metavar="RUN", help="its id, or its folder")
    resume.add_argument("--runs-dir", type=Path, metavar="DIR", help="folder of the runs")
    resume.add_argument("--json", action="store_true", help="events on stdout, one JSON object a line")
    resume.add_argument("--mcp", action="store_true", help="with an agent of yours, as `agent mcp`")
    options.port(resume)


def _add_revalidate(commands: Any) -> None:
    again = _command(
        commands, "revalidate", _revalidate, "judge afresh what an earlier run kept, on this machine as it is"
    )
    add = again.add_argument
    add("past", metavar="RUN", help="its id, or its folder")
    add("--target", type=Path, metavar="DIR", help="folder of the repository (default: where that run had it)")
    options.how(again)
    add("--run-id", metavar="ID", help="name of the new run (default: date and time)")
    add("--runs-dir", type=Path, metavar="DIR", help="folder of the runs, this one's as well")
    add("--budget-minutes", type=positive, metavar="MINUTES", help="for judging the changes one by one")
    add("--json", action="store_true", help="events on stdout, one JSON object a line")


def _add_image(commands: Any) -> None:
    image = commands.add_parser("image", help="make container images for targets, and list them")
    subcommands = image.add_subparsers(dest="image_command", metavar="COMMAND", required=True)
    build = _command(subcommands, "build", _image_build, "make an image that targets can run in")
    add = build.add_argument
    add("kind", nargs="?", choices=("rocm", "cuda", "cpu"), help="for which machines (default: as this one)")
    add("--base", metavar="IMAGE", help="image to start from (default: one of AMD, PyTorch or Python, by its tag)")
    add(
        "--for",
        dest="target",
        type=Path,
        metavar="DIR",
        help="then install what this repository requires; none of its code is run",
    )
    add("--tag", type=image_name, metavar="NAME", help="what to call it (default: a name that tells its recipe)")
    add(
        "--arg",
        dest="args",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="argument of its Dockerfile; the image keeps it, so no secrets; may be repeated",
    )
    add("--yes", action="store_true", help="do not ask before using the network")
    _command(subcommands, "list", _image_list, "list the images that were made")


def _add_skills(commands: Any) -> None:
    skills = commands.add_parser("skills", help="the skill packs: list, validate, install and export them")
    subcommands = skills.add_subparsers(dest="skills_command", metavar="COMMAND", required=True)
    listing = _command(subcommands, "list", partial(_skills, "show"), "list the packs")
    validate = _command(subcommands, "validate", partial(_skills, "validate"), "check packs against their format")
    validate.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="a pack, or a folder of packs (default: ours)"
    )
    install = _command(subcommands, "install", partial(_skills, "install"), "copy the packs to where an agent looks")
    install.add_argument("--for", dest="agent", required=True, metavar="AGENT", help="claude, codex, or a folder")
    install.add_argument("--user", action="store_true", help="for all your projects (default: the current folder)")
    install.add_argument("--replace", action="store_true", help="write over packs that are there and differ")
    export = _command(
        subcommands, "export", partial(_skills, "export"), "print instructions and tools for other agents"
    )
    export.add_argument("--output", type=file_to_write, metavar="FILE", help="write them to a file")
    for command in (listing, install, export):
        options.packs(command)


def _add_isa(commands: Any) -> None:
    isa = _command(commands, "isa", _isa, "show what Triton compiles a kernel to for AMD GPUs, without one")
    add = isa.add_argument
    add("file", metavar="FILE[:KERNEL]", help="Python file with the kernel; it is loaded in a sandbox")
    add("--arch", action="append", metavar="NAMES", help="architectures, separated by commas (default: gfx942), or all")
    add("--signature", type=Path, metavar="FILE", help="JSON that describes the arguments (docs/isa.md)")
    add("--launch", type=Path, metavar="FILE", help="script whose launches of it describe the arguments")
    add("--diff", metavar="FILE[:KERNEL]", help="say whether this one compiles to the same machine code")
    add("--all-configs", action="store_true", help="every configuration of an autotuner (default: the first)")
    add("--python", type=Path, metavar="FILE", help="interpreter that has Triton (default: the active environment's)")
    add(
        "--sandbox",
        choices=("auto", "docker", "bwrap", "local"),
        default="auto",
        help="where the file is loaded (default: auto; local contains nothing)",
    )
    add("--json", action="store_true", help="all that was found as JSON")
    add("--yes", action="store_true", help="where nothing contains the file, load it uncontained without asking")


def _run(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import run
    from agent.reporting.display import open_progress

    config = given.config_of(arguments)
    doing.run_dir, doing.reference = config.run_dir, given.reference(config.run_dir)
    config = run.settle(config, agree=partial(given.agree, arguments, config.target))
    with open_progress(as_json=arguments.json) as progress:
        return run.start(config, progress)


def _mcp(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import run
    from agent.errors import WrongUsage
    from agent.outside import command
    from agent.reporting.display import open_progress

    def order() -> command.Order:
        config = given.config_of(arguments)
        config = run.settle(config, agree=lambda reasons: arguments.yes)
        doing.run_dir, doing.reference = config.run_dir, given.reference(config.run_dir)
        return command.Order(config, lambda told, joins: run.start(config, told, joins))

    def ordered(asked: command.Begin) -> command.Order:
        arguments.target, arguments.entry = Path(asked.target), asked.entry
        arguments.budget_minutes = asked.budget_minutes or arguments.budget_minutes
        return order()

    if (arguments.target is None) != (arguments.entry is None):
        raise WrongUsage("--target and --entry belong together.")
    first = order() if arguments.target is not None else None
    with open_progress(as_json=False) as progress:
        return command.serve(progress, arguments.port, first, ordered, arguments.skills or ())


def _judge(timed: bool, arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import judge

    return judge.run(
        arguments, given.config_of(arguments), partial(given.agree, arguments, arguments.target), timed=timed
    )


def _revalidate(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent.past_run import changes
    from agent.records import run_folder

    folder = run_folder.find(arguments.past, given.runs_dirs(arguments))
    past = folder.read().config
    changes(folder.path)  # before anything is begun for it
    arguments.target, arguments.entry = arguments.target or past.target, past.entry
    arguments.revalidates = folder.path
    for name in ("image", "mounts", "time_limit_s", "threads", "memory_gib", "arch"):  # as then, unless said otherwise
        if not getattr(arguments, name, None):
            setattr(arguments, name, getattr(past, name))
    return _run(arguments, doing)


def _profile(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import profile

    config = given.config_of(arguments)
    return profile.run(arguments, config, agree=partial(given.agree, arguments, config.target))


def _resume(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import run
    from agent.records import run_folder
    from agent.reporting.display import open_progress

    given.needed(arguments, ("port",), "--mcp", arguments.mcp)
    given.needed(arguments, ("json",), "a stdout of its own, which --mcp takes", not arguments.mcp)
    folder = run_folder.find(arguments.run, given.runs_dirs(arguments))
    doing.run_dir, doing.reference = folder.path, given.reference(folder.path)
    with open_progress(as_json=arguments.json) as progress:
        if not arguments.mcp:
            return run.resume(folder.path, progress)
        from agent.outside import command

        here = {"runs_dir": folder.path.parent, "run_id": folder.run_id}  # it may have been moved
        order = command.Order(
            folder.read().config.model_copy(update=here),
            lambda told, joins: run.resume(folder.path, told, joins),
        )
        return command.serve(progress, arguments.port, order, lambda asked: order)


def _runs(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent.reporting.list_runs import lines

    for line in lines(given.runs_dirs(arguments)):
        print(line)
    return 0


def _graph(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent.graph import mermaid

    print(mermaid())
    return 0


def _doctor(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import doctor
    from agent.config import default_python, program

    python = program(arguments.python or default_python(arguments.image))
    return doctor.check(
        target=arguments.target,
        entry=arguments.entry,
        python=python,
        provider=arguments.sandbox or ("docker" if arguments.image else None),
        image=arguments.image,
    )


def _image_build(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import images

    return images.build(arguments)


def _image_list(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import images

    return images.show()


def _skills(what: str, arguments: argparse.Namespace, doing: Doing) -> int:
    from agent.skill_packs import commands

    return int(getattr(commands, what)(arguments))


def _isa(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import isa

    return isa.run(arguments, agree=partial(given.agree, arguments, Path(arguments.file)))
