"""A git repository full of traps: whatever git can be told to run leaves a mark when it does."""

from __future__ import annotations

from pathlib import Path

HOOKS = """
applypatch-msg pre-applypatch post-applypatch pre-commit prepare-commit-msg commit-msg post-commit
pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive
post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate
fsmonitor-watchman post-index-change
"""

CONFIG = """
[core]
    fsmonitor = {fsmonitor}
    sshCommand = {ssh}
    pager = {pager}
    editor = {editor}
    askPass = {askpass}
    gitProxy = {proxy}
    alternateRefsCommand = {alternate_refs}
    attributesFile = {folder}/attributes
    untrackedCache = true
    autocrlf = true
[filter "evil"]
    clean = {clean}
    smudge = {smudge}
    required = true
[filter "process"]
    process = {process}
[diff]
    external = {external}
[diff "evil"]
    textconv = {textconv}
    command = {diff_command}
[merge "evil"]
    driver = {merge}
[gpg]
    program = {gpg}
[commit]
    gpgSign = true
[tag]
    gpgSign = true
[credential]
    helper = {credential}
[alias]
    trap = !{alias}
    log = !{alias}
[uploadpack]
    packObjectsHook = {pack_objects}
[remote "origin"]
    url = ext::{ext}
    uploadpack = {uploadpack}
    fetch = +refs/heads/*:refs/remotes/origin/*
[submodule "sub"]
    update = !{submodule}
    url = ext::{ext}
[trailer "ratchet-attempt"]
    command = {trailer}
[interactive]
    diffFilter = {interactive}
[sequence]
    editor = {sequence}
[include]
    path = {folder}/more.config
"""


def set_traps(repository: Path, folder: Path) -> Path:
    """Give `repository` all the traps; the folder that is returned holds one file for each that has run."""
    marks = folder / "marks"
    marks.mkdir(parents=True)

    def trap(name: str, *, place: Path | None = None) -> str:
        script = place or folder / name
        script.write_text(f"#!/bin/sh\n: > {marks}/{name}\ncat 2>/dev/null\n")
        script.chmod(0o755)
        return str(script)

    class Traps(dict[str, str]):
        def __missing__(self, name: str) -> str:
            return trap(name)

    git = repository / ".git"
    for hook in HOOKS.split():
        trap(f"hook-{hook}", place=git / "hooks" / hook)
    with (git / "config").open("a") as config:
        config.write(CONFIG.format_map(Traps(folder=str(folder))))
    (folder / "more.config").write_text(f'[filter "included"]\n    clean = {trap("included")}\n')
    (folder / "attributes").write_text("*.cfg filter=included\n")
    (git / "info" / "attributes").write_text("*.txt filter=process diff=evil merge=evil\n")
    return marks
