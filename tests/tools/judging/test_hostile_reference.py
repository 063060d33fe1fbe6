"""The target's own code runs in the reference as well: what it makes of its files there changes nothing of ours."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from tests.files import write_files
from tests.forking import ForkingSandbox
from tools.errors import WorkloadError
from tools.judging.open_referee import open_referee

ENTRY = """
import os, sys, torch

VICTIM = {victim!r}
tensors = sys.modules["_ratchet_guest.tensors"]
plain = tensors.save_flat


def save_flat(path, *arguments, **keywords):
    plain(path, *arguments, **keywords)
    if path.endswith({ending!r}):
        {swap}


tensors.save_flat = save_flat


def build():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8)


def inputs(seed):
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),)
"""
SWAPS = {
    "link": "os.unlink(path); os.symlink(VICTIM, path)",
    "second name": "os.unlink(path); os.link(VICTIM, path)",
    "pipe": "os.unlink(path); os.mkfifo(path)",
    "folder": "os.unlink(path); os.mkdir(path)",
    "length": "os.truncate(path, 1 << 42)",
}


def judged(tmp_path: Path, entry: str) -> None:
    write_files(tmp_path / "pristine", {"bench.py": entry})
    (tmp_path / "scratch").mkdir()
    pristine, scratch = tmp_path / "pristine", tmp_path / "scratch"
    open_referee(pristine, "bench.py", python=sys.executable, sandbox=ForkingSandbox(), scratch=scratch).close()


@pytest.mark.parametrize(
    "kind, ending",
    [
        *((kind, "state-a") for kind in SWAPS),
        ("link", ".in"),
        ("link", ".out"),
        ("pipe", ".out"),
    ],
)
def test_what_it_puts_in_the_place_of_a_file_is_neither_taken_nor_changed(
    kind: str, ending: str, tmp_path: Path
) -> None:
    (tmp_path / "victim").write_text("a secret of the host")
    (tmp_path / "victim").chmod(0o600)
    entry = ENTRY.format(victim=str(tmp_path / "victim"), ending=ending, swap=SWAPS[kind])
    with pytest.raises(WorkloadError) as caught:
        judged(tmp_path, entry)
    assert caught.value.exit_status in (40, 67), caught.value
    assert stat.S_IMODE((tmp_path / "victim").stat().st_mode) == 0o600
    assert (tmp_path / "victim").read_text() == "a secret of the host"


DESCRIPTIONS = {
    "nothing": "{}",
    "a folder that is none": "{**told, 'environment': {**told['environment'], 'installed': '/'}}",
    "a device nobody knows": "{**told, 'environment': {**told['environment'], 'device': 'tpu'}}",
    "endless cases": "{**told, 'cases': told['cases'] * 1000}",
    "no cases": "{**told, 'cases': []}",
    "a shape of megabytes": "{**told, 'cases': [{'phase': '', 'shape': {'x': 'y' * 1000000}, 'work': {}}]}",
    "a phase with an escape": "{**told, 'cases': [{'phase': chr(27) + '[2J', 'shape': {}, 'work': {}}]}",
    "constants of megabytes": "{**told, 'constants': ['x' * 1000000]}",
    "a tolerance that is none": "{**told, 'tolerance': {'rtol': float('nan')}}",
    "another mode": "{**told, 'mode': 'sleeping'}",
}
DESCRIBES = """
wire = sys.modules["_ratchet_guest.wire"]
send = wire.Channel.send


def altered(self, told, *arguments):
    send(self, {{**({reply}), "nonce": told["nonce"]}} if "form" in told else told, *arguments)


wire.Channel.send = altered
"""
HONEST = ENTRY.format(victim="", ending="nothing", swap="pass")


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_is_refused_that_holds(name: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        judged(tmp_path, HONEST + DESCRIBES.format(reply=DESCRIPTIONS[name]))
    assert caught.value.exit_status == 42, caught.value


@pytest.mark.parametrize(
    "op, reply",
    [
        ("save_init", "{}"),
        ("build", "{'is_module': 'yes'}"),
        ("memory", "{'peak_bytes': -1}"),
        ("memory", "{}"),
    ],
)
def test_a_reply_of_another_form_is_a_finding(op: str, reply: str, tmp_path: Path) -> None:
    change = f"""
reference = sys.modules["_ratchet_guest.reference"]
reference.Reference.op_{op} = lambda self, **arguments: {reply}
"""
    with pytest.raises(WorkloadError, match="is none") as caught:
        judged(tmp_path, HONEST + change)
    assert caught.value.exit_status == 67
