"""How the files of a target import one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files import write_files
from tests.observed import Target
from tools.rewrite import CannotRewrite, hoist
from tools.rewrite.reading.importers import other_way


@pytest.mark.parametrize(
    ("importer", "line", "in_package"),
    [
        ("train.py", "from src.model import Model", True),
        ("train.py", "import src.model", True),
        ("train.py", "from src import model", True),
        ("src/__init__.py", "from .model import Model", True),
        ("src/__init__.py", "from . import model", True),
        ("src/more/part.py", "from ..model import Model", True),
        ("src/train.py", "from model import Model", False),
        ("src/train.py", "import model as m", False),
        ("src/train.py", "def main():\n    from model import (  # here\n        Model,\n    )", False),
        ("src/part.py", "from . import (\n    other,\n    model,\n)", True),
    ],
)
def test_both_ways_are_told_apart(tmp_path: Path, importer: str, line: str, in_package: bool) -> None:
    write_files(tmp_path, {"src/model.py": "class Model: ...\n", importer: f"{line}\n"})
    assert other_way(tmp_path, "src/model.py", not in_package) == importer
    assert other_way(tmp_path, "src/model.py", in_package) == ""


@pytest.mark.parametrize(
    ("importer", "text"),
    [
        ("src/train.py", "from models import Model"),
        ("src/train.py", "import torch.model"),
        ("src/train.py", "from .other import model"),
        ("src/train.py", "model = 1"),
        ("src/train.py", "from model import ("),
        (".venv/train.py", "from model import Model"),
        ("other/train.py", "from model import Model"),
        ("train.py", "from model import Model"),
        ("train.py", "from ....src.model import Model"),
    ],
)
def test_what_does_not_import_it_does_not_count(tmp_path: Path, importer: str, text: str) -> None:
    write_files(tmp_path, {"src/model.py": "", "other/model.py": "", importer: f"{text}\n"})
    assert [other_way(tmp_path, "src/model.py", each) for each in (True, False)] == ["", ""]


def test_a_module_of_the_standard_library_is_another_one(tmp_path: Path) -> None:
    write_files(tmp_path, {"src/random.py": "", "src/train.py": "import random\n"})
    assert other_way(tmp_path, "src/random.py", True) == ""


def test_a_package_is_imported_by_its_name(tmp_path: Path) -> None:
    write_files(tmp_path, {"src/net/__init__.py": "", "src/train.py": "from net import Model\n"})
    assert other_way(tmp_path, "src/net/__init__.py", True) == "src/train.py"


def test_a_file_that_is_imported_in_both_ways_is_left_alone(tmp_path: Path) -> None:
    head = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    target = Target.of_model(tmp_path / "tree", f"{head}        return x + torch.arange(16)\n")
    site = hoist.sites(target.tree, target.observe())[0]
    assert "constant(" in hoist.rewrite(target.tree, site)["model.py"]
    both = target.with_files({"__init__.py": "from .model import Model\n"})
    with pytest.raises(CannotRewrite, match="is imported as model here and in another way in __init__"):
        hoist.rewrite(both.tree, site)
