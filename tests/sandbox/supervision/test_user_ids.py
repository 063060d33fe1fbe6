"""Folders are handed to a separate user without touching what is not the agent's own."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Command, Limits
from sandbox.errors import Unusable
from sandbox.local.provider import LocalSandbox
from sandbox.supervision import user_ids
from tests.sandbox.conftest import as_root
from tests.sandbox.devices import machines

UID = 1_900_000_123
CARD = machines.gpu(groups=(44, 109))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_ids_do_not_repeat_soon() -> None:
    ids = list(itertools.islice(user_ids.fresh_ids(), 5000))
    assert len(set(ids)) == 5000
    assert all(1_879_048_192 <= uid <= 2_147_483_647 for uid in ids)


def test_a_folder_is_closed_when_any_folder_on_the_way_is(open_folder: Path) -> None:
    inner = open_folder / "private" / "inner"
    inner.mkdir(parents=True)
    assert user_ids.closed_to(UID, (), inner) is None
    inner.parent.chmod(0o700)
    assert user_ids.closed_to(UID, (), inner) == inner.parent
    inner.parent.chmod(0o711)
    assert user_ids.closed_to(UID, (), inner) is None
    assert user_ids.closed_to(UID, (), inner.parent) == inner.parent  # it may be passed, but not be read
    assert user_ids.closed_to(UID, (), inner / "missing") == inner / "missing"
    (open_folder / "link").symlink_to(inner.parent / "missing")
    assert user_ids.closed_to(UID, (), open_folder / "link") == inner.parent / "missing"


@as_root
@pytest.mark.parametrize("what", ["interpreter", "module", "scratch folder"])
def test_what_is_out_of_reach_means_no_separate_user_and_is_named(
    what: str, open_folder: Path, open_python: str
) -> None:
    private, scratch = open_folder / "private", open_folder / "scratch"
    private.mkdir(mode=0o700)
    (private / "python").symlink_to(sys.executable)
    sandbox, named = {
        "interpreter": (LocalSandbox(private / "python", scratch), "Permission denied"),
        "module": (LocalSandbox(open_python, scratch, imports=("no_such_module",)), "no_such_module"),
        "scratch folder": (LocalSandbox(open_python, private / "scratch"), str(private)),
    }[what]
    assert not sandbox.promises().separate_users
    assert any("own user id" in note and named in note for note in sandbox.promises().notes)


@as_root
def test_every_command_has_a_user_of_its_own(open_folder: Path, open_python: str, guests_of: Any) -> None:
    sandbox = LocalSandbox(open_python, open_folder / "scratch", gpu=CARD)
    assert sandbox.promises().separate_users
    run = guests_of(sandbox, open_python)
    code = """
import resource
most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
channel.send({'ids': [*os.getresuid(), *os.getresgid()], 'groups': os.getgroups(), 'processes': most})
"""
    first, second = (run(code).channel.receive(20.0) for _ in range(2))
    assert len(set(first["ids"])) == len(set(second["ids"])) == 1
    assert first["ids"] != second["ids"]
    assert set(first["groups"]) == set(CARD.groups)
    assert first["processes"] == Limits().processes + 64  # the kernel holds each of them to its number


@as_root
def test_a_separate_user_writes_its_own_folder_and_no_other(
    open_folder: Path, open_python: str, guests_of: Any
) -> None:
    sandbox = LocalSandbox(open_python, open_folder / "scratch", owned=(open_folder / "ours",))
    for name in ("ours/inputs", "mine", "theirs"):
        (open_folder / name).mkdir(parents=True)
    (open_folder / "ours/inputs/x").write_text("input")
    (open_folder / "ours/inputs/x").chmod(0o600)
    run = guests_of(sandbox, open_python)
    run("channel.receive()", writable=(open_folder / "theirs",)).channel  # noqa: B018 - started
    code = f"""
def attempt(act):
    try: return act()
    except PermissionError: return "refused"
channel.send({{"reads": attempt(lambda: open("{open_folder}/ours/inputs/x").read()),
    "spoils": attempt(lambda: open("{open_folder}/ours/inputs/x", "w")),
    "writes": attempt(lambda: open("{open_folder}/mine/y", "w").write("out")),
    "peeks": attempt(lambda: os.listdir("{open_folder}/theirs")),
    "finds": attempt(lambda: os.listdir("{open_folder}/scratch"))}})
"""
    told = run(code, readable=(open_folder / "ours/inputs",), writable=(open_folder / "mine",)).channel.receive(20.0)
    refused = dict.fromkeys(("spoils", "peeks", "finds"), "refused")
    assert told == {"reads": "input", "writes": 3, **refused}
    assert mode(open_folder / "mine") == 0o700
    assert mode(open_folder / "mine" / "y") == 0o600


@as_root
def test_what_is_not_the_agents_own_keeps_its_mode_and_is_refused(open_folder: Path) -> None:
    mounted = open_folder / "weights"
    mounted.mkdir(mode=0o700)
    command = Command(argv=("x",), cwd=open_folder, role="worker", readable=(mounted,))
    user_ids.hand_over(UID, command, owned=())
    with pytest.raises(Unusable, match="out of reach of the separate user of worker") as caught:
        user_ids.need_within_reach(UID, (), command)
    assert str(mounted) in caught.value.hint
    assert mode(mounted) == 0o700
    user_ids.hand_over(UID, command, owned=(open_folder,))
    user_ids.need_within_reach(UID, (), command)
    assert mode(mounted) == 0o755


@as_root
def test_files_with_other_names_and_links_to_elsewhere_are_left_alone(open_folder: Path) -> None:
    (open_folder / "given").mkdir()
    (open_folder / "elsewhere").write_text("somebody's")
    os.link(open_folder / "elsewhere", open_folder / "given" / "hard")
    (open_folder / "given" / "soft").symlink_to(open_folder / "elsewhere")
    (open_folder / "given" / "own").touch(mode=0o644)
    user_ids.give(open_folder / "given", UID)
    assert (open_folder / "elsewhere").stat().st_uid == 0
    assert (open_folder / "given" / "own").stat().st_uid == UID
    assert (open_folder / "given" / "soft").lstat().st_uid == UID
