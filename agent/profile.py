"""`agent profile`: where the time of a target's call goes, in the terminal, as a page, and as a trace for Perfetto."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from agent import run as running
from agent.config import RunConfig
from agent.records.atomic_file import write_atomically
from agent.repository.target import find_entry, find_target, import_target
from sandbox.errors import SandboxUnavailable
from tools.profiler import page, text
from tools.profiler.collect import Depth, Options, profile_tree
from tools.profiler.result import Profile

Agree = Callable[[list[SandboxUnavailable]], bool]


def run(arguments: argparse.Namespace, config: RunConfig, agree: Agree) -> int:
    """Print the profile and write what was asked for; returns 0. Raises: RatchetError."""
    config = running.settle(config, agree)
    with tempfile.TemporaryDirectory(prefix="ratchet-profile-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # the separate users of commands pass through
        trace = arguments.trace or folder / "trace.json"
        profile = _profile(config, folder, trace, arguments.calls, arguments.counters)
    for line in text.render(profile).splitlines():
        print(line)
    if arguments.html is not None:
        write_atomically(arguments.html, page.render(profile))
        print(f"\n{arguments.html}")
    if arguments.json_file is not None:
        write_atomically(arguments.json_file, profile.model_dump_json(indent=1) + "\n")
    return 0


def _profile(config: RunConfig, folder: Path, trace: Path, calls: int, depth: Depth) -> Profile:
    target = find_target(config.target)
    import_target(target, folder / "pristine")
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o711)
    notes: list[str] = []
    with running.sandbox_for(config, folder / "sandbox", (folder,), notes.append) as sandbox:
        profile = profile_tree(
            sandbox,
            folder / "pristine",
            find_entry(target, config.entry),
            python=str(config.python),
            scratch=scratch,
            trace=trace,
            options=Options(calls, depth, config.threads, config.time_limit_s, target),
        )
    profile.notes += notes
    return profile
