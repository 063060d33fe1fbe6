"""What depends on shapes alone is built once; what somebody could change, or what depends on data, stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observed import Target, same_results
from tools.rewrite import CannotRewrite, hoist

HEAD = """
import math

import torch
from torch import nn


def tables(n, size, device, base=10000.0):
    steps = torch.arange(0, size, 2, device=device).float() / size
    angles = torch.outer(torch.arange(n, device=device).float(), base ** -steps)
    return angles.cos(), angles.sin()


def scaled(n, factor):
    made = torch.ones(n)
    made *= factor
    return made


def shifted(x):
    return x + torch.arange(x.shape[1], device=x.device)[None, :, None]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.size = 16
        self.weight = nn.Parameter(torch.randn(16))
        self.register_buffer("steps", torch.arange(16.0))

    def forward(self, x):
        b, n, d = x.shape
{body}
        return x
"""

HOISTED = [
    (
        "a call",
        "        cos, sin = tables(n, self.size, x.device)\n        x = x * torch.cat([cos, sin], -1)",
        "cos, sin = constant(tables, n, self.size, x.device)",
    ),
    (
        "a call with a keyword",
        "        cos, _ = tables(n, size=d, device=x.device)\n        x = x + cos.sum()",
        "constant(tables, n, d, x.device)",
    ),
    (
        "statements",
        """
        m = torch.full((n, n), -1.0, dtype=x.dtype)
        m = torch.triu(m, diagonal=1)
        x = x + m.sum() * 1.0""",
        "m = constant(_model_m, n, x.dtype)",
    ),
    (
        "statements that share work",
        """
        t = torch.arange(n, device=x.device).float()
        c = t.cos()
        s = t.sin()
        x = x * c[None, :, None] + s[None, :, None]""",
        "c, s = constant(",
    ),
    ("an expression", "        x = x + torch.linspace(0, 1, d, device=x.device) * 2", "x + constant(_model_constant"),
    (
        "made in place",
        """
        m = torch.zeros(n, n)
        m[0] = 1.0
        m.triu_(1)
        x = x + m.sum()""",
        "m = constant(_model_m, n)",
    ),
    (
        "changed in place twice",
        """
        m = torch.ones(n, d)
        x = x + m
        m += 1.0
        x = x + m""",
        "m = constant(_model_m, n, d)",
    ),
    (
        "in a branch",
        """
        if n > 2:
            m = torch.ones(n, device=x.device).cumsum(0)
            x = x * m[None, :, None]""",
        "m = constant(_model_m, n, x.device)",
    ),
    (
        "through a function that changes its own",
        "        x = x * scaled(n, 2.0)[None, :, None]",
        "constant(_model_constant, n)",
    ),
]

LEFT_ALONE = [
    ("random", "        x = x + torch.rand(n)[None, :, None]"),
    ("uninitialised", "        x = x + torch.empty(n).shape[0]"),
    ("from a buffer", "        x = x + self.steps.cos()"),
    ("from a weight", "        x = x + torch.outer(self.weight, self.weight).sum()"),
    ("changed by data", "        m = torch.zeros(n, d)\n        m[:] = x[0]\n        x = x + m"),
    ("changed in place later", "        m = torch.ones(n, d)\n        x = x + m\n        m += x[0]\n        x = x + m"),
    ("stored", "        m = torch.ones(n, d)\n        self.kept = m\n        x = x + m"),
    ("read off the input", "        m = torch.ones(int(x.abs().sum()) % 3 + 1)\n        x = x + m.sum()"),
    (
        "of another type by then",
        """
        m = torch.ones(n, dtype=x.dtype)
        x = x.double()
        m = m.to(x.dtype)
        x = (x * m[None, :, None]).float()""",
    ),
]


def model(tmp_path: Path, body: str) -> Target:
    text = HEAD.replace("{body}", body.strip("\n"))
    return Target.of_model(tmp_path / "tree", text, inputs='(torch.randn(2, shape.get("n", 5), 16),)')


def hoisted(target: Target) -> Target:
    sites = hoist.sites(target.tree, target.observe())
    if not sites:
        raise CannotRewrite("nothing was found")
    return target.with_files(hoist.rewrite(target.tree, sites[0]))


@pytest.mark.parametrize(("body", "wanted"), [h[1:] for h in HOISTED], ids=[h[0] for h in HOISTED])
def test_what_shapes_decide_is_built_once(tmp_path: Path, body: str, wanted: str) -> None:
    before = model(tmp_path, body)
    after = hoisted(before)
    assert wanted in after.text()
    assert same_results(before, after, {"n": 5}, {"n": 3}, {"n": 5}, {"n": 1})


@pytest.mark.parametrize("body", [h[1] for h in LEFT_ALONE], ids=[h[0] for h in LEFT_ALONE])
def test_what_is_not_surely_constant_is_left_alone(tmp_path: Path, body: str) -> None:
    with pytest.raises(CannotRewrite):
        hoisted(model(tmp_path, body))


def test_a_result_that_is_returned_stays_its_callers_own(tmp_path: Path) -> None:
    body = "        m = torch.ones(n, d)\n        x = x + m\n        return m"
    with pytest.raises(CannotRewrite):
        hoisted(model(tmp_path, body))


@pytest.mark.parametrize(
    "end",
    [
        "return dict(x=x, m=m)",
        "return Found(x, m=m)",
        "return x, m.unsqueeze(0)",
        "return torch.reshape(m, (-1,))",
        "self.kept = m.view(-1)",
        "self.kept: object = m.T",
        "self.seen.append(m)",
        "return x, (m if n else x)",
        "v = m.view(-1)\n        return x, v",
        "v = w = m[0]\n        w.add_(1.0)",
        "return x, (v := m)",
        "outputs = (x,) + (m,)\n        return outputs",
        "found = ()\n        found += (m,)\n        return found",
        "if n: return x, m",
        "if n: m += 1",
        "return tuple(t for t in (x, m))",
        "return [m for _ in range(2)]",
        "extra = (m,)\n        return (x,) + extra if n else extra",
        "return F.dropout(m, 0.1, False)",
        "F.relu(m, inplace=True)",
        "torch.relu_(m)",
        "for row in m:\n            row.zero_()",
    ],
)
def test_so_does_what_shares_its_memory(tmp_path: Path, end: str) -> None:
    text = HEAD.replace("from torch import nn", "import torch.nn.functional as F\nfrom torch import nn\n\nFound = dict")
    text = text.replace("self.size = 16", "self.size = 16\n        self.seen = []")
    text = text.replace("{body}", f"        m = torch.ones(n, d)\n        x = x + m\n        {end}")
    target = Target.of_model(tmp_path / "tree", text.replace("Found(x, m=m)", "Found(x=x, m=m)"))
    with pytest.raises(CannotRewrite):
        hoisted(target)


@pytest.mark.parametrize(
    "end",
    [
        "return x * m",
        "return x, m.cos()",
        "return x, m.shape",
        "self.width = m.shape[1]",
        "x += m\n        return x",
        "return self.Mixed(m)",
        "return self.mixed(x + m)",
    ],
)
def test_what_only_was_computed_from_it_may_be_handed_out(tmp_path: Path, end: str) -> None:
    text = HEAD.replace("self.size = 16", "self.size = 16\n        self.Mixed = self.mixed = nn.Linear(16, 16)")
    text = text.replace("{body}", f"        m = torch.ones(n, d)\n        x = x + m\n        {end}")
    assert "m = constant(" in hoisted(Target.of_model(tmp_path / "tree", text)).text()


def test_each_group_can_be_hoisted_alone(tmp_path: Path) -> None:
    body = """
        a = torch.arange(n, device=x.device).cos()
        b = torch.arange(d, device=x.device).sin()
        x = x * a[None, :, None] * b"""
    target = model(tmp_path, body)
    site = hoist.sites(target.tree, target.observe())[0]
    assert [g.title for g in hoist.groups(target.tree, site)] == ["a", "b"]
    single = site.model_copy(update={"detail": {**site.detail, "only": "b"}})
    after = target.with_files(hoist.rewrite(target.tree, single))
    assert "b = constant(" in after.text() and "a = torch.arange" in after.text()
    assert same_results(target, after)


def test_comments_and_formatting_around_stay(tmp_path: Path) -> None:
    body = """
        x = x*2  # odd   spacing stays

        # the ramp
        m = torch.arange(n,device=x.device)
        x = x + m[None, :, None]   # and this"""
    target = model(tmp_path, body)
    after = hoisted(target).text()
    for kept in ("x = x*2  # odd   spacing stays", "# the ramp", "x = x + m[None, :, None]   # and this"):
        assert kept in after


def test_line_ends_and_tabs_survive(tmp_path: Path) -> None:
    text = HEAD.replace("{body}", "        m = torch.arange(n)\n        x = x + m[None, :, None]  # größer")
    text = text.replace("    ", "\t").replace("\n", "\r\n")
    target = Target.of_model(tmp_path / "tree", text)
    after = hoisted(target)
    data = (after.tree / "model.py").read_bytes()
    assert b"\r\n\t\tm = constant(" in data and "größer".encode() in data
    assert data.count(b"\n") == data.count(b"\r\n")
    assert same_results(target, after)


def test_a_module_in_a_package_imports_relatively(tmp_path: Path) -> None:
    body = "        m = torch.arange(n)\n        x = x + m[None, :, None]"
    target = model(tmp_path, body)
    entry = target.text("bench.py").replace("from model import", "from package.net import")
    packaged = Target.write(
        tmp_path / "packaged",
        {
            "package/__init__.py": "",
            "package/net.py": target.text(),
            "bench.py": entry,
        },
    )
    after = hoisted(packaged)
    assert "from .ratchet_ops.constants import constant" in after.text("package/net.py")
    assert (after.tree / "package" / "ratchet_ops" / "constants.py").is_file()
    assert same_results(packaged, after)


def test_a_function_of_another_file_is_looked_into(tmp_path: Path) -> None:
    body = "        cos, sin = make_tables(n, self.size, x.device)\n        x = x * torch.cat([cos, sin], -1)"
    target = model(tmp_path, body)
    made = target.text()[target.text().index("def tables") : target.text().index("def scaled")]
    text = target.text().replace(
        "from torch import nn\n", "from torch import nn\nfrom rope import tables as make_tables\n", 1
    )
    split = Target.write(
        tmp_path / "split",
        {
            "model.py": text,
            "rope.py": f"import torch\n\n\n{made}",
            "bench.py": target.text("bench.py"),
        },
    )
    after = hoisted(split)
    assert "constant(make_tables, n, self.size, x.device)" in after.text()
    assert same_results(split, after)


def test_another_package_of_that_name_is_not_written_over(tmp_path: Path) -> None:
    target = model(tmp_path, "        m = torch.arange(n)\n        x = x + m[None, :, None]")
    Target.write(target.tree, {"ratchet_ops/__init__.py": "mine = 1\n"})
    with pytest.raises(CannotRewrite, match="not ours"):
        hoisted(target)
