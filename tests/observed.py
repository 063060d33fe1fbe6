"""A small target on disk, observed and called in this process the way a worker does it, for tests of the playbook.

`Target` writes the files; after a rewrite, `with_files` makes the changed tree beside it. Inputs come from the entry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests import guest
from tests.files import write_files
from tools.candidate import Site
from tools.observation import Observation
from tools.tuned import Tuned

ENTRY = """
import torch
from {module} import {model}

def build():
    torch.manual_seed(0)
    return {model}().eval()

def inputs(seed, **shape):
    torch.manual_seed(seed)
    return {inputs}
"""
MODEL = """
import math

import torch
import torch.nn.functional as F
from torch import nn

{before}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {arguments}):
{body}
"""


def cases(text: str) -> list[ParameterSet]:
    """Parameters from a list in text: each item, which begins with `- `, has lines of code, also apart by `; `, and
    after `=> ` what is wanted, where it says so.
    """
    found = []
    for item in text.strip("\n").removeprefix("- ").split("\n- "):
        code, arrow, wanted = item.partition("=> ")
        lines = [line.removeprefix("  ").replace("; ", "\n") for line in code.rstrip().splitlines()]
        found.append(pytest.param("\n".join(lines), *([wanted] if arrow else []), id=item.splitlines()[0][:60]))
    return found


@dataclass
class Target:
    """A tree with an entry in the declared form, `bench.py`."""

    tree: Path

    @classmethod
    def write(cls, tree: Path, files: Mapping[str, str]) -> Target:
        return cls(write_files(tree, files))

    @classmethod
    def of_model(
        cls, tree: Path, source: str, model: str = "Model", inputs: str = "(torch.randn(2, 5, 16),)"
    ) -> Target:
        entry = ENTRY.format(module="model", model=model, inputs=inputs)
        return cls.write(tree, {"model.py": source, "bench.py": entry})

    @classmethod
    def of_forward(
        cls,
        tree: Path,
        body: str,
        init: str = "self.layer = nn.Linear(16, 16)",
        *,
        before: str = "",
        arguments: str = "x",
        inputs: str = "(torch.randn(2, 5, 16),)",
    ) -> Target:
        """A model with these lines in `forward` and `__init__`, and `before` above its class."""
        lines = {"body": indent(body, " " * 8), "init": indent(init, " " * 8), "before": before, "arguments": arguments}
        text = MODEL
        for name, value in lines.items():
            text = text.replace(f"{{{name}}}", value)
        return cls.of_model(tree, text, inputs=inputs)

    def with_files(self, files: Mapping[str, str]) -> Target:
        """The tree after a rewrite, in a new folder."""
        other = self.tree.with_name(self.tree.name + "+")
        for path in self.tree.rglob("*.py"):
            copy = other / path.relative_to(self.tree)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        return Target.write(other, files)

    def text(self, path: str = "model.py") -> str:
        return (self.tree / path).read_text()

    # -- running it

    def observe(self, *shapes: dict[str, Any]) -> Observation:
        return Observation.model_validate(self.told(*shapes))

    def told(self, *shapes: dict[str, Any]) -> dict[str, Any]:
        """What the guest says, as it says it."""
        with self._imported():
            observer = guest.module("observe").Observer(str(self.tree), "bench.py")
            observer.op_build()
            return observer.op_observe(self._draw(observer, shapes or ({},)), calls=1)

    def tuned(self, *shapes: dict[str, Any]) -> Tuned:
        """What the tuner finds."""
        with self._imported():
            tuner = guest.module("tune").Tuner(str(self.tree), "bench.py")
            tuner.op_build()
            return Tuned.model_validate(tuner.op_tune(self._draw(tuner, shapes or ({},))))

    def _draw(self, observer: Any, shapes: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
        cases, constants = [], observer.workload.optional("constants")
        for index, shape in enumerate(shapes):
            path = str(self.tree / f".inputs-{index}")
            guest.module("tensors").save(path, observer.workload.inputs("", shape, 1))
            cases.append({"path": path, "phase": "", "constants": list(constants()) if constants else []})
        return cases

    @contextmanager
    def built(self) -> Iterator[tuple[Any, Callable[..., Any]]]:
        """(the callable, a function that draws its inputs), importable while the context lasts."""
        import torch

        with self._imported(), torch.no_grad():
            workload = guest.module("forms").read(str(self.tree), "bench.py")
            built = workload.build()
            yield built, lambda seed=1, **shape: workload.inputs("", shape, seed)

    @contextmanager
    def _imported(self) -> Iterator[None]:
        import torch

        before = dict(sys.modules)
        sys.path.insert(0, str(self.tree))
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled()):  # which a worker sets for its process
                yield
        finally:
            sys.path.remove(str(self.tree))
            for name, module in list(sys.modules.items()):
                if name not in before and str(self.tree) in str(getattr(module, "__file__", "")):
                    del sys.modules[name]


def same_results(before: Target, after: Target, *shapes: dict[str, Any], tolerance: float = 1e-5) -> bool:
    """Whether both trees give the same outputs from the same weights, for every shape."""
    import torch

    with before.built() as (old, draw):
        state = {name: value.clone() for name, value in old.state_dict().items()}
        wanted = [(draw(seed, **shape), old(*draw(seed, **shape))) for seed, shape in enumerate(shapes or ({},), 1)]
    with after.built() as (new, _):
        new.load_state_dict(state, strict=True)
        return all(torch.allclose(new(*given), out, rtol=tolerance, atol=tolerance) for given, out in wanted)


def rewritten(before: Target, rewriter: ModuleType, *, kind: str = "") -> Target:
    """The tree after a rewriter changed its only site, of a kind where that is said. Raises: CannotRewrite."""
    found = [site for site in rewriter.find(before.observe()) if kind in ("", site.kind)]
    return before.with_files(rewriter.rewrite(before.tree, only(found)))


def only(sites: list[Site]) -> Site:
    assert len(sites) == 1, [f"{s.kind} {s.file}:{s.line}" for s in sites]
    return sites[0]
