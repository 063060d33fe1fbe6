"""What a program in the sandbox is told: where it is, who it is, and nothing else of the agent's own environment."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from tools.program_environment import environment


def test_only_what_finds_libraries_and_devices_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    found = environment(Path("/home"), tmp=Path("/home/tmp"), threads=2)
    assert "OPENAI_API_KEY" not in found and found["HIP_VISIBLE_DEVICES"] == "3"
    assert (found["HOME"], found["TMPDIR"], found["OMP_NUM_THREADS"]) == ("/home", "/home/tmp", "2")
    assert not {"HOME", "TMPDIR", "OMP_NUM_THREADS"} & environment(None).keys()


def test_a_user_without_a_name_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's compiler asks for it when it is imported, and an id of its own is in no list of users."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1983510066)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    monkeypatch.setenv("USER", environment(None)["USER"])
    assert getpass.getuser() == "ratchet"
