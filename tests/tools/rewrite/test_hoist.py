"""What depends on shapes alone is built once; what other code could change, or what depends on data, stays."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

import pytest
import torch

from tests import guest
from tests.observed import Target, cases, same_results
from tools.rewrite import CannotRewrite, hoist, model_class

TABLES = """
def tables(n, size, device, base=10000.0):
    steps = torch.arange(0, size, 2, device=device).float() / size
    angles = torch.outer(torch.arange(n, device=device).float(), base ** -steps)
    return angles.cos(), angles.sin()
"""
BEFORE = f"""
Found = dict

{TABLES}

def scaled(n, factor):
    made = torch.ones(n)
    made *= factor
    return made

def steps(x, size: int, base=100.0):
    half = size // 2
    rates = torch.exp(-math.log(base) * torch.arange(half, dtype=torch.float32) / half).to(x.device)
    return x[..., :half] * rates

def ramp(x):
    m = torch.arange(x.shape[1])
    return m.to(x.dtype)

def biased(n: int, m: int, table):
    one = torch.arange(n)[:, None] * max(m / n, 1.0)
    other = torch.arange(m)[None, :] * max(n / m, 1.0)
    between = one - other + m
    return table[between.long()].sum()
"""
INIT = """
self.size, self.seen, self.weight = 16, [], nn.Parameter(torch.randn(16))
self.Mixed = self.mixed = nn.Linear(16, 16)
self.register_buffer("steps", torch.arange(16.0))
self.table = nn.Parameter(torch.randn(16, 16))
"""
HOISTED = """
- cos, sin = tables(n, self.size, x.device); x = x * torch.cat([cos, sin], -1)
  => cos, sin = constant(tables, n, self.size, x.device)
- cos, _ = tables(n, size=d, device=x.device); x = x + cos.sum()  => constant(tables, n, d, x.device)
- m = torch.full((n, n), -1.0, dtype=x.dtype); m = torch.triu(m, diagonal=1); x = x + m.sum() * 1.0
  => m = constant(_model_m, n, x.dtype)
- t = torch.arange(n, device=x.device).float(); c = t.cos(); s = t.sin(); x = x * c[None, :, None] + s[None, :, None]
  => c, s = constant(
- x = x + torch.linspace(0, 1, d, device=x.device) * 2  => x + constant(_model_constant
- m = torch.zeros(n, n); m[0] = 1.0; m.triu_(1); x = x + m.sum()  => m = constant(_model_m, n)
- m = torch.ones(n, d); x = x + m; m += 1.0; x = x + m  => m = constant(_model_m, n, d)
- if n > 2:
      m = torch.ones(n, device=x.device).cumsum(0)
      x = x * m[None, :, None]
  => m = constant(_model_m, n, x.device)
- x = x * scaled(n, 2.0)[None, :, None]  => constant(_model_constant, n)
"""
GIVEN_AGAIN = """
- e = math.log(10.0) / n; e = torch.exp(torch.arange(d) * -e); e = x * e; x = x + e; return x
  => b, n, d = x.shape; e = constant(_model_e, n, d); e = x * e
- e = 2.0 * n; f = e + 1; e = torch.arange(d) * e; x = x * f; x = x + e; e = x; return e
  => e = 2.0 * n; f = e + 1; e = constant(_model_e, n, d); x = x * f; x = x + e; e = x
- n = torch.arange(n); x = x + n[None, :, None]; n = x * 2; return n  => n = constant(_model_n, x.shape)
"""
OF_ARGUMENTS = """
- x = x + steps(x, d).sum()  => rates = constant(_steps_rates, base, half, x.device)
- x = x + biased(n, n, self.table)  => between = constant(_biased_between, n, m)
"""
SENT = """
- x = x + biased(n, n, self.table)  => return table[constant(_biased_made, n, m, table.device)]
- t = torch.arange(n) * 2; x = x + self.table[t].sum()  => x + self.table[constant(_model_made, n, self.table.device)]
- t = torch.arange(n); x = x + (self.table[t] + self.table[:, t % 16].sum()).sum()
  => self.table[:, constant(_model_made, n, self.table.device)].sum()
- t = torch.arange(n); x[:, t] = 0.5; x = x + t.sum()  => x[:, constant(_model_made, n, x.device)] = 0.5
- m = torch.arange(n).to(x.dtype); m += x[0, 0, 0]; x = x + m[None, :, None]
  => m = constant(_model_m, n, x.dtype).clone()
- m = torch.arange(n).to(x.dtype); self.kept = m; x = x + m.sum()  => m = constant(_model_m, n, x.dtype).clone()
- x = x + ramp(x)[None, :, None]  => return constant(_ramp_made, x.shape[1], x.dtype).clone()
"""
LEFT_ALONE = """
- x = x + torch.rand(n)[None, :, None]
- x = x + torch.empty(n).shape[0]
- x = x + self.steps.cos()
- x = x + torch.outer(self.weight, self.weight).sum()
- m = torch.zeros(n, d); m[:] = x[0]; x = x + m
- m = torch.ones(n, d); x = x + m; m += x[0]; x = x + m
- m = torch.ones(n, d); self.kept = m; x = x + m
- m = torch.ones(int(x.abs().sum()) % 3 + 1); x = x + m.sum()
- m = torch.ones(n, dtype=x.dtype); x = x.double(); m = m.to(x.dtype); x = (x * m[None, :, None]).float()
- m = torch.ones(n, d); x = x + m; return m
"""
HANDED_OUT = """
- return dict(x=x, m=m)
- return Found(x=x, m=m)
- return x, m.unsqueeze(0)
- return torch.reshape(m, (-1,))
- self.kept = m.view(-1)
- self.kept: object = m.T
- self.seen.append(m)
- return x, (m if n else x)
- v = m.view(-1); return x, v
- v = w = m[0]; w.add_(1.0)
- return x, (v := m)
- outputs = (x,) + (m,); return outputs
- found = (); found += (m,); return found
- if n: return x, m
- if n: m += 1
- return tuple(t for t in (x, m))
- return [m for _ in range(2)]
- extra = (m,); return (x,) + extra if n else extra
- return F.dropout(m, 0.1, False)
- F.relu(m, inplace=True)
- torch.relu_(m)
- for row in m:
      row.zero_()
- v = m.view(-1); m = x * 2; return x, v
- m *= x[0]; m = x; return m
- m = m.view(d, n); m = m.t(); return x, m
- if n:
      m = x
  return m
"""
COMPUTED = """
- return x * m
- return x, m.cos()
- return x, m.shape
- self.width = m.shape[1]
- x += m; return x
- return self.Mixed(m)
- return self.mixed(x + m)
"""
RAMP = "m = torch.arange(n)\nx = x + m[None, :, None]"


def model(tmp_path: Path, body: str) -> Target:
    inputs = '(torch.randn(2, shape.get("n", 5), 16),)'
    body = f"b, n, d = x.shape\n{body}\nreturn x"
    return Target.of_forward(tmp_path / "tree", body, INIT.strip(), before=BEFORE, inputs=inputs)


def hoisted(target: Target) -> Target:
    found = hoist.sites(target.tree, target.observe())
    if not found:
        raise CannotRewrite("nothing was found")
    return target.with_files(hoist.rewrite(target.tree, found[0]))


@pytest.mark.parametrize(
    ("body", "wanted"), cases(HOISTED + (GIVEN_AGAIN + OF_ARGUMENTS).replace("\n\n", "\n").lstrip("\n"))
)
def test_what_shapes_decide_is_built_once(tmp_path: Path, body: str, wanted: str) -> None:
    before = model(tmp_path, body)
    after = hoisted(before)
    assert wanted in re.sub(r"\n\s*", "; ", after.text())
    assert same_results(before, after, {"n": 5}, {"n": 3}, {"n": 5}, {"n": 1})


@pytest.mark.parametrize(("body", "wanted"), cases(SENT))
def test_what_goes_to_a_device_in_each_call_goes_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, wanted: str
) -> None:
    on_host = guest.module("observe_reads").on_host
    monkeypatch.setattr(guest.module("observe_reads"), "on_host", lambda tensor: tensor.dtype is torch.int64)
    before = model(tmp_path, body)
    after = hoisted(before)
    assert wanted in after.text() and not any(row.fixed for row in after.observe().host_copies)
    monkeypatch.setattr(guest.module("observe_reads"), "on_host", on_host)
    with contextlib.suppress(CannotRewrite):
        assert wanted not in hoisted(before).text(), "on the host there is nothing to move"
    assert same_results(before, after, {"n": 5}, {"n": 3}, {"n": 5})


@pytest.mark.parametrize("body", cases(LEFT_ALONE))
def test_what_is_not_surely_constant_is_left_alone(tmp_path: Path, body: str) -> None:
    with pytest.raises(CannotRewrite):
        hoisted(model(tmp_path, body))


@pytest.mark.parametrize("end", cases(HANDED_OUT))
def test_a_result_that_shares_memory_with_what_is_handed_out_stays(tmp_path: Path, end: str) -> None:
    with pytest.raises(CannotRewrite):
        hoisted(model(tmp_path, f"m = torch.ones(n, d)\nx = x + m\n{end}"))


@pytest.mark.parametrize("end", cases(COMPUTED))
def test_what_only_was_computed_from_it_may_be_handed_out(tmp_path: Path, end: str) -> None:
    assert "m = constant(" in hoisted(model(tmp_path, f"m = torch.ones(n, d)\nx = x + m\n{end}")).text()


def test_each_group_can_be_hoisted_alone(tmp_path: Path) -> None:
    ramps = "a = torch.arange(n, device=x.device).cos()\nb = torch.arange(d, device=x.device).sin()"
    target = model(tmp_path, f"{ramps}\nx = x * a[None, :, None] * b")
    site = hoist.sites(target.tree, target.observe())[0]
    assert [g.title for g in hoist.groups(target.tree, site)] == ["a", "b"]
    single = site.model_copy(update={"detail": {**site.detail, "only": "b"}})
    after = target.with_files(hoist.rewrite(target.tree, single))
    assert "b = constant(" in after.text() and "a = torch.arange" in after.text()
    assert same_results(target, after)


def test_what_another_group_still_needs_stays(tmp_path: Path) -> None:
    body = "t = torch.arange(n)\nu = t.float()\nc = u.cos()\nx = x + c[None, :, None]\ns = u.sin()\nx = x + s[:, None]"
    before = model(tmp_path, body)
    assert same_results(before, hoisted(before), {"n": 5}, {"n": 3})


def test_comments_line_ends_and_tabs_stay(tmp_path: Path) -> None:
    lines = ("x = x*2  # odd   spacing", "", "# the ramp", "m = torch.arange(n)", "x = x + m[None, :, None]   # größer")
    target = model(tmp_path, "\n".join(lines))
    text = target.text().replace("    ", "\t").replace("\n", "\r\n")
    (target.tree / "model.py").write_bytes(text.encode())
    after = hoisted(target)
    data = (after.tree / "model.py").read_bytes().decode()
    assert all(line in data for line in ("\r\n\t\tm = constant(", lines[0], lines[2], lines[4]))
    assert data.count("\n") == data.count("\r\n")
    assert same_results(target, after)


def test_a_module_in_a_package_imports_relatively(tmp_path: Path) -> None:
    target = model(tmp_path, RAMP)
    entry = target.text("bench.py").replace("from model import", "from package.net import")
    files = {"package/__init__.py": "", "package/net.py": target.text(), "bench.py": entry}
    packaged = Target.write(tmp_path / "packaged", files)
    after = hoisted(packaged)
    assert "from .ratchet_ops.constants import constant" in after.text("package/net.py")
    assert (after.tree / "package" / "ratchet_ops" / "constants.py").is_file()
    assert same_results(packaged, after)


def test_a_function_of_another_file_is_looked_into(tmp_path: Path) -> None:
    made = model(tmp_path, "cos, sin = make_tables(n, self.size, x.device)\nx = x * torch.cat([cos, sin], -1)")
    text = made.text().replace("import math\n", "import math\nfrom rope import tables as make_tables\n", 1)
    files = {"model.py": text, "rope.py": f"import torch\n{TABLES}", "bench.py": made.text("bench.py")}
    split = Target.write(tmp_path / "split", files)
    after = hoisted(split)
    assert "constant(make_tables, n, self.size, x.device)" in after.text()
    assert same_results(split, after)


def test_another_package_of_that_name_is_not_written_over(tmp_path: Path) -> None:
    target = model(tmp_path, RAMP)
    Target.write(target.tree, {"ratchet_ops/__init__.py": "mine = 1\n"})
    with pytest.raises(CannotRewrite, match="not ours"):
        hoisted(target)


def test_what_a_caller_builds_once_is_not_built_once_again_inside(tmp_path: Path) -> None:
    both = model(
        tmp_path, "cos, sin = tables(n, self.size, x.device)\nx = x * torch.cat([cos, sin], -1) + steps(x, d).sum()"
    )
    seen = both.observe()
    assert {site.detail["function"] for site in hoist.sites(both.tree, seen)} == {"forward", "steps"}
    assert {site.detail["function"] for site in hoist.find(seen)} == {"forward", "steps", "tables"}


@pytest.mark.gpu
def test_on_a_gpu_calls_are_recorded_once_nothing_goes_there_in_them(tmp_path: Path) -> None:
    body = "b, n, d = x.shape\nreturn x + biased(n, n, self.table) + steps(x, d).sum()"
    inputs = '(torch.randn(2, 5, 16, device="cuda"),)'
    before = Target.of_forward(tmp_path / "tree", body, f"{INIT.strip()}\nself.cuda()", before=BEFORE, inputs=inputs)
    seen = before.observe()
    assert [(row.frames[0].function, row.fixed) for row in seen.host_copies] == [("biased", True), ("steps", True)]
    after = hoisted(hoisted(before))
    assert after.observe().host_copies == [] and same_results(before, after)
    for target, recorded in ((before, False), (after, True)):
        capture = model_class.capture(target.tree, model_class.find(target.observe())[0])
        with target.with_files(capture).built() as (net, draw):
            for seed in range(4):
                net(*draw(seed))
            graphed = sys.modules["ratchet_ops.graphed"]
            assert any(graphed._recorders.get(net).graphs.values()) == recorded
            assert recorded or "(model.py:" in graphed.given_up[0], graphed.given_up
