"""`agent profile`: where the time of a target's call goes, in the terminal, as a page, and as a trace for Perfetto."""

from __future__ import annotations

import argparse

from agent import run as running
from agent.config import RunConfig
from agent.records.atomic_file import write_atomically
from agent.repository.target import find_entry, find_target, import_target
from sandbox.choose import Agree
from tools.profiler import page, text
from tools.profiler.collect import profile_tree
from tools.tree_removal import passable_folder


def run(arguments: argparse.Namespace, config: RunConfig, agree: Agree) -> int:
    """Print the profile and write what was asked for; returns 0. Raises: RatchetError."""
    config = running.settle(config, agree)
    with passable_folder("ratchet-profile-") as folder:
        target, pristine, scratch = find_target(config.target), folder / "pristine", folder / "scratch"
        import_target(target, pristine)
        scratch.mkdir(mode=0o711)
        notes: list[str] = []
        with running.sandbox_for(config, folder / "sandbox", (folder,), notes.append) as sandbox:
            profile = profile_tree(
                sandbox,
                pristine,
                find_entry(target, config.entry),
                python=str(config.python),
                scratch=scratch,
                trace=arguments.trace or folder / "trace.json",
                calls=arguments.calls,
                depth=arguments.counters,
                threads=config.threads,
                start_timeout_s=config.time_limit_s,
                original=target,
            )
        profile.notes += notes
    print(text.render(profile), end="")
    if arguments.html is not None:
        write_atomically(arguments.html, page.render(profile))
        print(f"\n{arguments.html}")
    if arguments.json_file is not None:
        write_atomically(arguments.json_file, profile.model_dump_json(indent=1) + "\n")
    return 0
