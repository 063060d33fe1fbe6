"""Library code is changed in copies that stand in for the originals, and only for the version they were made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.proposers import Platform, ProposalRequest
from agent.proposers.playbook import Playbook
from tests import guest
from tests.files import write_files
from tools.diff.patch import AppliedPatch, PatchRules, plan_patch, tree_reader
from tools.observation import LibrarySource, Observation
from tools.rewrite import overlay

LAYERS = '''"""Layers of a library."""
import torch
from torch import nn
from .scaling import SCALE

class Base(nn.Module):
    pass

class Attention(Base):
    def __init__(self, size):
        super().__init__()
        self.q = nn.Linear(size, size)
        self.k = nn.Linear(size, size)
        self.v = nn.Linear(size, size)

    def forward(self, x):
        q = self.q(x)
        k = self.k(x)
        v = self.v(x)
        return torch.softmax(q @ k.transpose(-1, -2) * SCALE, -1) @ v
'''
LIBRARY = {
    "layerlib/__init__.py": """import importlib

def __getattr__(name):  # lazily, as large libraries do it
    return getattr(importlib.import_module(__name__ + ".layers"), name)
""",
    "layerlib/layers.py": LAYERS,
    "layerlib/scaling.py": "SCALE = 0.25\n",
    "layerlib-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: layerlib\nVersion: 1.2\n",
    "layerlib-1.2.dist-info/top_level.txt": "layerlib\n",
}
SCRIPT = """
import inspect, pickle, sys
import torch
from layerlib import Attention

torch.manual_seed(0)
model = Attention(16).eval()
with torch.no_grad():
    out = model(torch.randn(2, 5, 16))
from layerlib.layers import Base
assert isinstance(model, Base) and Attention.__module__ == "layerlib.layers"
assert type(pickle.loads(pickle.dumps(model))) is Attention
print(inspect.getsourcefile(Attention), [round(value, 4) for value in out.flatten().tolist()[:6]], sys.argv[1:])
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_files(tmp_path / "library", LIBRARY)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_files(tmp_path / "target", {"bench.py": SCRIPT})


@pytest.fixture(scope="module")
def seen_once(tmp_path_factory: pytest.TempPathFactory) -> Observation:
    place = tmp_path_factory.mktemp("seen")
    library, target = write_files(place / "library", LIBRARY), write_files(place / "target", {"bench.py": SCRIPT})
    return observed(target, library)


@pytest.fixture
def seen(seen_once: Observation) -> Observation:
    return seen_once.model_copy(deep=True)


def observed(tree: Path, library: Path) -> Observation:
    """What a worker sees, in a process of its own: a library that was imported stays so."""
    program = f"""
import sys, json
sys.path[:0] = [{str(tree)!r}, {str(library)!r}, {str(guest.FOLDER.parents[1])!r}]
from tests import guest
reference = guest.module("reference").Reference({str(tree)!r}, "bench.py")
told = reference.op_describe()
observer = guest.module("observe").Observer({str(tree)!r}, "bench.py")
observer.op_build(recipe=told["recipe"])
reference.op_draw({{{str(tree.parent / "input")!r}: 1}}, phase=told["cases"][0]["phase"])
case = {{"path": {str(tree.parent / "input")!r}, "phase": told["cases"][0]["phase"]}}
print("OBSERVED" + json.dumps(observer.op_observe([case], calls=1)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return Observation.model_validate_json(done.stdout.partition("OBSERVED")[2])


def proposed(tree: Path, view: overlay.View, step: str) -> Any:
    platform = Platform("cpu")
    return Playbook().propose(
        ProposalRequest(step, tree, view.tree, "bench.py", True, view.observation, platform, (), [{}])
    )


def patched(tree: Path, diff: str, into: Path) -> Path:
    found = plan_patch(diff, tree_reader(tree), PatchRules())
    assert isinstance(found, AppliedPatch), found
    files = {path: state.data.decode() for path, state in found.files.items() if state is not None}
    return write_files(into, {"bench.py": (tree / "bench.py").read_text(), **files})


def run(tree: Path, library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(library)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_library_code_is_changed_in_a_copy(tmp_path: Path, target: Path, library: Path, seen: Observation) -> None:
    view = overlay.view(target, "bench.py", seen, tmp_path / "view")
    assert view.copies == {"optimized/overlay/layerlib.layers.py": "layerlib.layers"}
    candidates, reason = proposed(target, view, "fuse_projections")
    assert [c.title for c in candidates] == ["Run q, k and v of Attention as one matrix multiplication"], reason
    tree = patched(target, candidates[0].diff, tmp_path / "patched")

    (advice,) = overlay.advice(candidates[0].diff, "bench.py")
    assert "Copies of layerlib.layers were changed" in advice and "`python -m optimized bench.py`" in advice
    plain, changed = run(tree, library, "bench.py"), run(tree, library, "-m", "optimized", "bench.py", "--option")
    assert changed.returncode == 0, changed.stderr
    assert str(library) in plain.stdout and "optimized/overlay/layerlib.layers.py" in changed.stdout
    assert plain.stdout.split("[")[1] == changed.stdout.split("[")[1] and "['--option']" in changed.stdout
    (tree / "first.py").write_text("import optimized\n" + SCRIPT)
    assert run(tree, library, "first.py").stdout.split("[")[1] == plain.stdout.split("[")[1]

    then = observed(tree, library)
    frame = then.attention[0].frames[0]
    assert (frame.file, frame.third_party) == ("optimized/overlay/layerlib.layers.py", False)
    assert frame.module == "layerlib.layers"
    again = overlay.view(tree, "bench.py", then, tmp_path / "view-again")
    assert again.copies == {}, "the copy is the target's own from then on"
    further, reason = proposed(tree, again, "compile_model")
    assert [c.title for c in further] == ["Compile Attention (default settings)"], reason


def test_host_and_guest_know_the_package_by_the_same_signs() -> None:
    inside = guest.module("overlay")
    assert (inside.PACKAGE, inside.MARK) == (overlay.PACKAGE, overlay.MARK)
    assert all(text.startswith(overlay.MARK) for text in overlay.runtime("optimized/overlay/a.py").values())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("layerlib-1.2.dist-info/METADATA", "Version: 1.2", "Version: 1.3"), "was made of layerlib 1.2, and 1.3 is"),
        (("layerlib-1.2.dist-info/METADATA", "Name: layerlib", "Name: other"), "was made of layerlib 1.2, and"),
    ],
)
def test_other_versions_fail(
    tmp_path: Path, target: Path, library: Path, change: tuple[str, str, str], says: str
) -> None:
    tree = patched_by_hand(target, tmp_path / "patched", LAYERS)
    file, old, new = change
    (library / file).write_text((library / file).read_text().replace(old, new))
    if "Name" in old:
        (library / "layerlib-1.2.dist-info").rename(library / "other-1.2.dist-info")
    done = run(tree, library, "-m", "optimized", "bench.py")
    assert done.returncode != 0 and says in done.stderr and "Traceback" in done.stderr
    assert run(tree, library, "bench.py").returncode == 0


def patched_by_hand(target: Path, into: Path, text: str) -> Path:
    path = "optimized/overlay/layerlib.layers.py"
    source = LibrarySource(module="layerlib.layers", file="/l.py", library="layerlib", version="1.2", text=text)
    files = {"bench.py": (target / "bench.py").read_text(), path: overlay._copy(source), **overlay.runtime(path)}
    return write_files(into, files)


def test_it_has_to_come_before_the_library(tmp_path: Path, target: Path, library: Path) -> None:
    tree = patched_by_hand(target, tmp_path / "patched", LAYERS)
    (tree / "late.py").write_text("import layerlib.layers\nimport optimized\n")
    done = run(tree, library, "late.py")
    assert done.returncode != 0 and "layerlib.layers was imported already: import optimized before it" in done.stderr


def test_a_copy_keeps_its_lines(tmp_path: Path, target: Path) -> None:
    for text in ("a = 1\nb = 2\n", "a = 1\r\nb = 2\r\n", "a = 1\nb = 2"):
        source = LibrarySource(module="l.m", file="/l.py", library="l", version="1", text=text)
        copied = overlay._copy(source)
        assert copied.startswith(text) and copied.splitlines()[-1] == "# Ratchet: a copy of l.m from l 1"
        assert len(copied.splitlines()) == 3


def test_a_package_of_that_name_that_is_not_ours_stays(tmp_path: Path, target: Path, seen: Observation) -> None:
    write_files(target, {"optimized/__init__.py": "FAST = True\n"})
    view = overlay.view(target, "bench.py", seen, tmp_path / "view")
    assert view.copies == {} and view.observation.linear_groups[0].third_party
    candidates, reason = proposed(target, view, "fuse_projections")
    assert candidates == [] and "library code of which no copy can be made" in reason


@pytest.mark.parametrize("module", ["../../x", "layers", "a.b\nc", "a..b", "a/b.c"])
def test_a_name_that_is_no_module_makes_no_file(tmp_path: Path, target: Path, seen: Observation, module: str) -> None:
    seen.sources[0].module = module
    assert overlay.view(target, "bench.py", seen, tmp_path / "view").copies == {}
    assert not (tmp_path / "view" / "optimized").exists()


@pytest.mark.slow
def test_a_whole_model_of_transformers_computes_the_same_with_its_changed_copy(tmp_path: Path) -> None:
    script = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(config).eval()
with torch.no_grad():
    logits = model(torch.arange(32).reshape(2, 16) * 7 % 64).logits
print(sys.modules[type(model).__module__].__file__, [round(value, 3) for value in logits.flatten().tolist()[::97]])
"""
    target = write_files(tmp_path / "target", {"bench.py": script})
    seen = observed(target, tmp_path)
    view = overlay.view(target, "bench.py", seen, tmp_path / "view")
    for step in ("audit_compute", "fuse_projections"):
        candidates, reason = proposed(target, view, step)
        assert candidates, reason
        for number, candidate in enumerate(candidates):
            tree = patched(target, candidate.diff, tmp_path / f"{step}-{number}")
            plain, changed = run(tree, tmp_path, "bench.py"), run(tree, tmp_path, "-m", "optimized", "bench.py")
            assert changed.returncode == 0, changed.stderr
            assert "optimized/overlay/transformers.models.llama.modeling_llama.py" in changed.stdout
            assert plain.stdout.split("[")[1] == changed.stdout.split("[")[1], candidate.title
