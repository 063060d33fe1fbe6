"""The target's own code runs in the reference as well: what it makes of its files there changes nothing of ours."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.tools.judging.opened import linear, opened
from tools.errors import WorkloadError

SAVES = """
import os, sys

VICTIM = {victim!r}
tensors = sys.modules["_ratchet_guest.tensors"]
plain = tensors.save_flat

def save_flat(path, *arguments, **keywords):
    plain(path, *arguments, **keywords)
    if path.endswith({ending!r}):
        {swap}

tensors.save_flat = save_flat
"""
SWAPS = {
    "link": "os.unlink(path); os.symlink(VICTIM, path)",
    "second name": "os.unlink(path); os.link(VICTIM, path)",
    "pipe": "os.unlink(path); os.mkfifo(path)",
    "folder": "os.unlink(path); os.mkdir(path)",
    "length": "os.truncate(path, 1 << 42)",
}


def refused(tmp_path: Path, more: str) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught, opened(tmp_path, {"bench.py": linear(more="\nimport sys\n" + more)}):
        pass
    return caught.value


@pytest.mark.parametrize(
    ("kind", "ending"), [*((kind, "state-a") for kind in SWAPS), ("link", ".in"), ("link", ".out"), ("pipe", ".out")]
)
def test_what_replaces_a_file_is_neither_taken_nor_changed(kind: str, ending: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("a secret of the host")
    victim.chmod(0o600)
    error = refused(tmp_path, SAVES.format(victim=str(victim), ending=ending, swap=SWAPS[kind]))
    assert error.exit_status in (40, 67), error
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600 and victim.read_text() == "a secret of the host"


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


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_is_refused_that_holds(name: str, tmp_path: Path) -> None:
    error = refused(tmp_path, DESCRIBES.format(reply=DESCRIPTIONS[name]))
    assert error.exit_status == 42, error


@pytest.mark.parametrize(
    ("op", "reply"),
    [("save_init", "{}"), ("build", "{'is_module': 'yes'}"), ("memory", "{'peak_bytes': -1}"), ("memory", "{}")],
)
def test_a_reply_of_another_form_is_a_finding(op: str, reply: str, tmp_path: Path) -> None:
    change = f"sys.modules['_ratchet_guest.reference'].Reference.op_{op} = lambda self, **arguments: {reply}\n"
    error = refused(tmp_path, change)
    assert error.exit_status == 67 and "is none" in error.message
