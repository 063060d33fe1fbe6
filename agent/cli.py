"""The command line: parses options and calls the module that does the work.

Each subcommand imports what it needs when it is called, so that `agent --help` answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent import __version__, given, guard, options
from agent.guard import Doing
from agent.options import count, file_to_write, image_name, pair, take


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
    run = _command(commands, "run", _run, "make a repository faster")
    options.of_a_run(run)
    take(run.add_argument_group("a model"), *options.MODEL)
    take(run, "--json")
    _add_resume(commands)
    _add_revalidate(commands)
    mcp = _command(commands, "mcp", _mcp, "let an agent of yours propose the changes of a run, over MCP")
    options.of_a_run(mcp, required=False)
    take(mcp, "--skills", "--port")
    take(_command(commands, "runs", _runs, "list the runs and their outcomes"), "--runs-dir")
    _add_profile(commands)
    _add_judge(commands, "verify", "check whether a change computes the same results")
    _add_judge(commands, "measure", "check whether a change is right and faster, as a run would")
    _add_isa(commands)
    _add_doctor(commands)
    _add_image(commands)
    _add_skills(commands)
    _command(commands, "graph", _graph, "print the graph of a run in Mermaid")
    return parser


def _command(commands: Any, name: str, handler: guard.Handler, summary: str) -> argparse.ArgumentParser:
    about = summary[0].upper() + summary[1:] + "."
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=about)
    take(parser, "--debug")
    parser.set_defaults(handler=handler)
    return parser


def _add_profile(commands: Any) -> None:
    profile = _command(commands, "profile", _profile, "show where the time of a call goes")
    options.of_a_target(profile)
    add = profile.add_argument_group("the profile").add_argument
    add("--calls", type=count, default=10, metavar="N", help="calls of each case to profile (default: 10)")
    how_far = ("none", "launches", "counters", "all")
    help = f"what to record on AMD GPUs: {', '.join(how_far)}, each slower (default: counters)"
    add("--counters", choices=how_far, default="counters", metavar="LEVEL", help=help)
    add("--html", type=file_to_write, metavar="FILE", help="write the profile as a self-contained page")
    add("--trace", type=file_to_write, metavar="FILE", help="write the trace, for Perfetto")
    add("--json", dest="json_file", type=file_to_write, metavar="FILE", help="write the profile as JSON")


def _add_judge(commands: Any, name: str, summary: str) -> None:
    judge = _command(commands, name, partial(_judge, name == "measure"), summary)
    options.of_a_target(judge)
    change = "the change: a patch, or a folder with another version of the repository"
    judge.add_argument("--change", type=Path, required=True, metavar="PATH", help=change)
    take(judge, "--json", help="print the verdict and its evidence as JSON")


def _add_resume(commands: Any) -> None:
    resume = _command(commands, "resume", _resume, "continue a run that was interrupted")
    resume.add_argument("run", metavar="RUN", help="id of the run, or its folder")
    take(resume, "--runs-dir", "--json")
    resume.add_argument("--mcp", action="store_true", help="let an agent of yours propose, as in `agent mcp`")
    take(resume, "--port")


def _add_revalidate(commands: Any) -> None:
    again = _command(commands, "revalidate", _revalidate, "judge the kept changes of a run again, on this machine")
    again.add_argument("past", metavar="RUN", help="id of the earlier run, or its folder")
    take(again, "--target", help="repository to work on (default: that of the earlier run)")
    take(again, *options.HOW, "--budget-minutes", "--run-id", "--runs-dir", "--json")


def _add_doctor(commands: Any) -> None:
    doctor = _command(commands, "doctor", _doctor, "check this machine, and a repository when one is given")
    take(doctor, "--target", help="repository to check")
    take(doctor, "--entry", "--python")
    which = "sandbox to check: docker, bwrap or local (default: the one a run would use)"
    take(doctor, "--sandbox", choices=options.SANDBOXES[1:], help=which)
    take(doctor, "--image", help="container image to check")


def _add_image(commands: Any) -> None:
    image = commands.add_parser("image", help="make container images for repositories, and list them")
    subcommands = image.add_subparsers(dest="image_command", metavar="COMMAND", required=True)
    build = _command(subcommands, "build", _image_build, "make a container image")
    add = build.add_argument
    kind = "kind of GPU: rocm, cuda or cpu (default: that of this machine)"
    add("kind", nargs="?", choices=("rocm", "cuda", "cpu"), metavar="KIND", help=kind)
    add("--for", dest="target", type=Path, metavar="DIR", help="install what this repository requires")
    add("--base", metavar="IMAGE", help="image to start from (default: one of AMD, PyTorch or Python)")
    add("--tag", type=image_name, metavar="NAME", help="name of the image (default: derived from its recipe)")
    arg = "argument of its Dockerfile, not for secrets; may be repeated"
    add("--arg", dest="args", type=pair, action="append", default=[], metavar="NAME=VALUE", help=arg)
    take(build, "--yes", help="use the network without asking")
    _command(subcommands, "list", _image_list, "list the images that were made")


def _add_skills(commands: Any) -> None:
    skills = commands.add_parser("skills", help="list, check, install and export the skill packs")
    subcommands = skills.add_subparsers(dest="skills_command", metavar="COMMAND", required=True)
    listing = _command(subcommands, "list", partial(_skills, "show"), "list the packs")
    validate = _command(subcommands, "validate", partial(_skills, "validate"), "check packs against their format")
    validate.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="a pack, or a folder of packs")
    install = _command(subcommands, "install", partial(_skills, "install"), "copy the packs to where an agent looks")
    install.add_argument("--for", dest="agent", required=True, metavar="AGENT", help="claude, codex, or a folder")
    install.add_argument("--user", action="store_true", help="install for all projects, not for the current folder")
    install.add_argument("--replace", action="store_true", help="overwrite installed packs that differ")
    export = _command(subcommands, "export", partial(_skills, "export"), "print instructions and tools for any agent")
    export.add_argument("--output", type=file_to_write, metavar="FILE", help="write them to a file")
    for command in (listing, install, export):
        take(command, "--skills")


def _add_isa(commands: Any) -> None:
    isa = _command(commands, "isa", _isa, "show the machine code of a Triton kernel for AMD GPUs, without one")
    add = isa.add_argument
    add("file", metavar="FILE[:KERNEL]", help="Python file with the kernel; a sandbox loads it")
    archs = "GPU architectures, separated by commas, or all (default: gfx942)"
    add("--arch", action="append", metavar="NAMES", help=archs)
    add("--signature", type=Path, metavar="FILE", help="types of the kernel's arguments, in JSON (docs/isa.md)")
    add("--launch", type=Path, metavar="FILE", help="script that launches the kernel, to read the types from")
    add("--diff", metavar="FILE", help="compare the machine code with that of this kernel, FILE or FILE:KERNEL")
    add("--all-configs", action="store_true", help="compile every configuration of the autotuner, not the first")
    take(isa, "--python")
    take(isa, "--sandbox", default="auto")
    take(isa, "--json", help="print everything as JSON")
    take(isa, "--yes")


def _run(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import run
    from agent.reporting.open_progress import open_progress

    config = given.config_of(arguments)
    doing.run_dir, doing.reference = config.run_dir, given.reference(config.run_dir)
    config = run.settle(config, agree=partial(given.agree, arguments, config.target))
    with open_progress(as_json=arguments.json) as progress:
        return run.start(config, progress)


def _mcp(arguments: argparse.Namespace, doing: Doing) -> int:
    from agent import run
    from agent.errors import WrongUsage
    from agent.outside import command
    from agent.reporting.open_progress import open_progress

    def order() -> command.DrivenRun:
        config = given.config_of(arguments)
        config = run.settle(config, agree=lambda reasons: arguments.yes)
        doing.run_dir, doing.reference = config.run_dir, given.reference(config.run_dir)
        return command.DrivenRun(config, lambda told, joins: run.start(config, told, joins))

    def ordered(asked: command.Begin) -> command.DrivenRun:
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
    from agent.reporting.open_progress import open_progress

    given.needed(arguments, ("port",), "--mcp", arguments.mcp)
    given.needed(arguments, ("json",), "a stdout of its own, which --mcp takes", not arguments.mcp)
    folder = run_folder.find(arguments.run, given.runs_dirs(arguments))
    doing.run_dir, doing.reference = folder.path, given.reference(folder.path)
    with open_progress(as_json=arguments.json) as progress:
        if not arguments.mcp:
            return run.resume(folder.path, progress)
        from agent.outside import command

        here = {"runs_dir": folder.path.parent, "run_id": folder.run_id}  # it may have been moved
        order = command.DrivenRun(
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
