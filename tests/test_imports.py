"""Imports point one way, heavy things load late, and each rule is shown to be able to fail."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import import_rules
from tests.files import write_files
from tests.import_rules import Tree

ROOT = Path(__file__).resolve().parent.parent
Rule = Callable[[Tree], list[str]]
RULES: tuple[Rule, ...] = (
    import_rules.upward,
    import_rules.in_one_place,
    import_rules.outside_world,
    import_rules.self_contained,
    import_rules.cycles,
    import_rules.broad_catches,
    import_rules.too_long,
)
HEAVY = {
    "torch",
    "triton",
    "transformers",
    "langgraph",
    "pydantic",
    "rich",
    "numpy",
    "libcst",
    "openai",
    "docker",
    "mcp",
    "yaml",
}


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(ROOT)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_repository_keeps_the_rule(rule: Rule, tree: Tree) -> None:
    assert not rule(tree), "\n" + "\n".join(rule(tree))


@pytest.mark.parametrize(
    ("rule", "files"),
    [
        (import_rules.upward, {"tools/a.py": "import agent.cli"}),
        (import_rules.upward, {"sandbox/a.py": "def f():\n    from tools import accept"}),
        (import_rules.upward, {"agent/steps/a.py": "from evals.cli import main"}),
        (import_rules.upward, {"sandbox/guest/a.py": "from ...tools import accept"}),
        (import_rules.upward, {"tools/a.py": "import importlib\nimportlib.import_module('agent.cli')"}),
        (import_rules.upward, {"agent/a.py": "import skills"}),
        (import_rules.upward, {"evals/a.py": "from evals.tasks.decoder import model"}),
        (import_rules.in_one_place, {"agent/cli.py": "def f():\n    import langgraph.graph"}),
        (import_rules.in_one_place, {"tools/a.py": "from openai import OpenAI"}),
        (import_rules.in_one_place, {"sandbox/docker/provider.py": "import docker"}),
        (import_rules.outside_world, {"tools/a.py": "def f():\n    import torch"}),
        (import_rules.outside_world, {"evals/a.py": "from transformers import LlamaConfig"}),
        (
            import_rules.outside_world,
            {"tools/a.py": "from sandbox.guest.b import x", "sandbox/guest/b.py": "import torch"},
        ),
        (
            import_rules.outside_world,
            {
                "tools/a.py": "from sandbox.guest import b",
                "sandbox/guest/b.py": "from . import c",
                "sandbox/guest/c.py": "import torch",
            },
        ),
        (import_rules.self_contained, {"sandbox/guest/a.py": "import numpy"}),
        (import_rules.self_contained, {"sandbox/guest/a.py": "from sandbox.guest import wire"}),
        (import_rules.self_contained, {"sandbox/guest/a.py": "from .. import contract"}),
        (import_rules.cycles, {"tools/a.py": "import tools.b", "tools/b.py": "from tools import a"}),
        (import_rules.broad_catches, {"agent/a.py": "try:\n    pass\nexcept Exception:\n    pass"}),
        (import_rules.broad_catches, {"agent/a.py": "try:\n    pass\nexcept:\n    pass"}),
        (import_rules.broad_catches, {"tools/a.py": "try:\n    pass\nexcept (OSError, BaseException):\n    pass"}),
        (import_rules.too_long, {"tools/a.py": "\n" * 401}),
    ],
)
def test_what_breaks_a_rule_is_found(rule: Rule, files: dict[str, str], tmp_path: Path) -> None:
    assert rule(_tree(tmp_path, files))


@pytest.mark.parametrize(
    "files",
    [
        {"evals/a.py": "import agent.b", "agent/b.py": "import tools.c", "tools/c.py": "import sandbox.contract"},
        {"agent/graph.py": "import langgraph.graph", "agent/llm/client.py": "import openai"},
        {"sandbox/guest/a.py": "import json\nimport torch\nfrom . import b\nfrom .b import c"},
        {"tools/a.py": "from sandbox.guest.wire import Channel", "sandbox/guest/wire.py": "import json"},
        {"evals/tasks/one/bench.py": "import torch\nimport transformers", "skills/one/assets/k.py": "import triton"},
        {"tools/a.py": "import tools.b", "tools/b.py": "def f():\n    import tools.a"},
        {"agent/a.py": "try:\n    pass\nexcept BaseException:\n    print()\n    raise"},
    ],
)
def test_what_keeps_the_rules_is_let_through(files: dict[str, str], tmp_path: Path) -> None:
    tree = _tree(tmp_path, files)
    assert not [sentence for rule in RULES for sentence in rule(tree)]


@pytest.mark.parametrize("program", ["agent.cli", "evals.cli"])
def test_help_loads_nothing_heavy(program: str) -> None:
    code = f"""
import sys
from {program} import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
print("loaded:", *sorted({HEAVY!r} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout + done.stderr


def test_code_that_runs_inside_the_target_parses_under_python_3_10(tree: Tree) -> None:
    inside = [path for path in tree.files if path.startswith((import_rules.GUEST, "skills/"))]
    assert inside
    for path in inside:
        ast.parse((ROOT / path).read_text(), filename=path, feature_version=(3, 10))


def _tree(root: Path, files: dict[str, str]) -> Tree:
    return Tree(write_files(root, files))
