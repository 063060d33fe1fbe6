"""A command runs in the sandbox on a copy that goes with it, and what it wrote comes back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sandbox import choose
from sandbox.choose import Name, Wanted
from tests.files import folder_open_to_all, write_files
from tests.sandbox.conftest import available
from tools.command import Commands
from tools.integrity import hash_tree

TREE = {"one.py": "print('one')\n", "package/two.py": "import sys\nprint(sys.executable)\n"}


@pytest.mark.parametrize("provider", ["docker", "bwrap", "local"])
def test_a_command_runs_on_a_copy(provider: Name) -> None:
    with folder_open_to_all() as folder:
        sandbox = available(choose.make(provider, Wanted(sys.executable, folder / "sandbox", (folder,))))
        tree = write_files(folder / "tree", TREE)
        before, commands = hash_tree(tree), Commands(sandbox, sys.executable, folder / "scratch")
        ran = commands.run(tree, "python one.py && echo new > package/three && cat package/three", 60.0)
        assert (ran.status, ran.how, ran.output.split()) == (0, "exit status 0", ["one", "new"])
        ran = commands.run(tree, "python package/two.py; ls package; exit 3", 60.0)
        assert ran.status == 3 and sys.executable in ran.output and "three" not in ran.output
        assert hash_tree(tree) == before and not any((folder / "scratch").iterdir())


def test_what_takes_too_long_or_writes_too_much_is_ended(tmp_path: Path) -> None:
    sandbox = choose.make("local", Wanted(sys.executable, tmp_path / "sandbox", (tmp_path,)))
    tree = write_files(tmp_path / "tree", TREE)
    commands = Commands(sandbox, sys.executable, tmp_path / "scratch")
    ran = commands.run(tree, "echo begun; sleep 60", 1.0)
    assert ran.status is None and "after 1 s" in ran.how and "begun" in ran.output
    ran = commands.run(tree, "yes", 60.0)
    first, _, rest = ran.output.partition("\n")
    assert ran.how == "ended: output limit" and first.endswith("bytes before this were not kept …]")
    assert rest.startswith(("y\n", "\ny"))
    assert commands.run(tree, "kill -9 $$", 60.0).how == "ended by signal 9"
    sandbox.reap()
