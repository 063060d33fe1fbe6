"""The places of rewriters are told by the target's process: nothing outside of the target is read for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rewrite import CannotRewrite
from tools.rewrite.reading.source import SourceFile


@pytest.mark.parametrize("path", ["../secret.py", "inside/../../secret.py", "link.py", "{absolute}"])
def test_a_file_outside_of_the_tree_is_not_read(tmp_path: Path, path: str) -> None:
    tree, secret = tmp_path / "tree", tmp_path / "secret.py"
    tree.mkdir()
    secret.write_text("KEY = 'secret'\n")
    (tree / "link.py").symlink_to(secret)
    with pytest.raises(CannotRewrite, match="is not in the target"):
        SourceFile(tree, path.replace("{absolute}", str(secret)))


def test_a_link_within_the_tree_is_followed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("X = 1\n")
    (tmp_path / "link.py").symlink_to("model.py")
    assert SourceFile(tmp_path, "link.py").module.code == "X = 1\n"
