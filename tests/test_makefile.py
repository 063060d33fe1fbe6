"""`make demo` works whatever git is told to do for its user."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.files import write_files

ROOT = Path(__file__).resolve().parents[1]


def test_the_demo_begins_for_those_who_sign_and_check_their_commits(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "evals/tasks/decoder", tmp_path / "evals/tasks/decoder")
    hook = "#!/bin/sh\nexit 1\n"
    write_files(tmp_path / "home", {"hooks/pre-commit": hook, "template/hooks/pre-commit": hook})
    for path in tmp_path.glob("home/**/pre-commit"):
        path.chmod(0o755)
    settings = {
        "commit.gpgSign": "true",
        "gpg.program": "false",
        "core.hooksPath": f"{tmp_path}/home/hooks",
        "init.templateDir": f"{tmp_path}/home/template",
    }
    for name, value in settings.items():
        subprocess.run(["git", "config", "--file", tmp_path / "home/.gitconfig", name, value], check=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/agent").symlink_to("/bin/true")
    command = ["make", "demo", "PYTHON=true", f"VENV={tmp_path}/bin"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    demo = tmp_path / ".demo/decoder"
    log = subprocess.run(["git", "log", "--format=%an: %s"], cwd=demo, env=environ, capture_output=True, text=True)
    assert log.stdout == "You: The decoder as it came\n"
    assert not list(demo.glob(".git/hooks/*"))
