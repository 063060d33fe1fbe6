"""What is set right in a guest before the target is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.guest import bootstrap

SOCKET = """
import sys
sys.path.insert(0, sys.argv[1])
from sandbox.guest import bootstrap
if sys.argv[2] == "short":
    bootstrap._short_sockets()
import multiprocessing.connection
with multiprocessing.connection.Listener(family="AF_UNIX") as listener:
    print(listener.address)
"""


@pytest.mark.parametrize("is_long", [False, True])
def test_sockets_of_multiprocessing_have_a_path_that_is_not_too_long(is_long: bool, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) if is_long else Path("/tmp")
    folder.mkdir(exist_ok=True)

    def listening(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", SOCKET, str(Path(bootstrap.__file__).parents[2]), how]
        env = {**os.environ, "TMPDIR": str(folder)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    ran = listening("short")
    assert ran.returncode == 0, ran.stderr
    address = Path(ran.stdout.strip())
    assert address.is_relative_to("/tmp") and not address.parent.exists()
    assert "path too long" in listening("plain").stderr or not is_long or sys.version_info >= (3, 14)
