"""Changes that are right for what an entry shows and wrong for users, each beside an honest one of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.evals.arena import RED_TEAM
from tests.files import write_files
from tests.tools.judging.opened import opened
from tools.judging import accuracy
from tools.judging.referee import Referee
from tools.judging.worker import Build

FILES = {path.name: path.read_text() for path in (RED_TEAM / "users").iterdir() if path.suffix == ".py"}
Weaken = Callable[[Referee, pytest.MonkeyPatch], Referee]


def without_other_weights(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> Referee:
    states = dict.fromkeys("ab", referee.workload.states["a"])
    weak = replace(referee, workload=replace(referee.workload, states=states, transforms=()))
    return without_variants("tiny", "not a number")(weak, monkeypatch)


def without_variants(*names: str) -> Weaken:
    def weaken(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> Referee:
        left = {
            phase: tuple(each for each in variants if not any(name in each for name in names))
            for phase, variants in referee.workload.variants.items()
        }
        refused = tuple(each for each in referee.workload.refused if each not in names)
        return replace(referee, workload=replace(referee.workload, variants=left, refused=refused, unseen=()))

    return weaken


def without_each(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> Referee:
    """Rows, columns and channels, by their own size."""
    monkeypatch.setattr(accuracy, "judge_excess", lambda found: "")
    return without_variants("")(referee, monkeypatch)


def without_memory(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> Referee:
    """Whose it is, how much of it lives on, and in which order it has the numbers."""
    same_form, memory = accuracy.same_form, ("shares its memory", "is a view that keeps", "is not contiguous")
    monkeypatch.setattr(
        accuracy, "same_form", lambda *s: "" if any(each in (told := same_form(*s)) for each in memory) else told
    )
    return referee


def without_gradients(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> Referee:
    return replace(referee, workload=replace(referee.workload, gradient_bytes=None))


def without_threads(referee: Referee, monkeypatch: pytest.MonkeyPatch) -> Referee:
    return replace(referee, workload=replace(referee.workload, has_threads=False))


@dataclass(frozen=True)
class Kind:
    """`old` in the model stands for what a change makes of it, a `wrong` and a `right` one."""

    old: str
    wrong: str
    right: str
    says: str
    weaken: Weaken | None = None  # takes away what sees it


KINDS = {
    "a branch that begins at zero": Kind(
        "return self.base(x) + (x @ self.a.t()) @ self.b.t()",
        "return self.base(x)",
        "return nn.functional.linear(x, self.base.weight + self.b @ self.a, self.base.bias)",
        "",
        without_other_weights,
    ),
    "a branch with a tiny scale": Kind(
        "return x + self.gamma * torch.tanh(self.light(x))",
        "return x.clone()",
        "return torch.addcmul(x, self.gamma, torch.tanh(self.light(x)))",
        "",
        without_other_weights,
    ),
    "a buffer of zeros": Kind(
        "return (x - self.mean) * 2",
        "return x * 2",
        "return (x - self.mean) + (x - self.mean)",
        "",
        without_other_weights,
    ),
    "integers that are kept": Kind(
        "return (x @ self.whole.to(x.dtype).t()) * self.scale",
        "wide = self.__dict__.setdefault(('wide', x.dtype), self.whole.to(x.dtype).t())\n"
        "        return (x @ wide) * self.scale",
        "return x @ (self.whole.to(x.dtype) * self.scale[:, None]).t()",
        "",
        without_other_weights,
    ),
    "a key of few numbers": Kind(
        "return self.second(self.first(x))",
        "a, b = self.first.weight, self.second.weight\n"
        "        key = (a[0, 0].item(), a[-1, -1].item(), b[0, 0].item(), b[-1, -1].item(), x.dtype)\n"
        "        if self.__dict__.get('key') != key:\n"
        "            self.__dict__['both'], self.__dict__['key'] = (b @ a).t().contiguous(), key\n"
        "        return x @ self.__dict__['both']",
        "return x @ (self.second.weight @ self.first.weight).t()",
        "after ",
        without_other_weights,
    ),
    "a key of one row": Kind(
        "return self.second(self.first(x))",
        "a, b = self.first.weight, self.second.weight\n"
        "        key = (*a[0].tolist(), *b[0].tolist(), x.dtype)\n"
        "        if self.__dict__.get('key') != key:\n"
        "            self.__dict__['both'], self.__dict__['key'] = (b @ a).t().contiguous(), key\n"
        "        return x @ self.__dict__['both']",
        "return (x @ self.first.weight.t()) @ self.second.weight.t()",
        "after ",
        without_other_weights,
    ),
    "a softmax without its maximum": Kind(
        "        scores = scores - scores.amax(-1, keepdim=True)\n",
        "",
        "        scores = scores - scores.max(-1, keepdim=True).values\n",
        "NaN or infinity",
        without_variants("huge", "large", "scaled", "full and empty"),
    ),
    "a mask of ones": Kind(
        "        scores = scores.masked_fill(mask[:, None, :] == 0, -1e9)\n",
        "",
        "        scores = torch.where((mask != 0)[:, None, :], scores, -1e9)\n",
        "padded",
        without_variants("padded", "with holes"),
    ),
    "a number that is always one": Kind(
        "(WIDTH**0.5 * temperature)",
        "WIDTH**0.5",
        "temperature / WIDTH**0.5",
        "other numbers",
        without_variants("numbers"),
    ),
    "a batch of one": Kind(
        "(weights.unsqueeze(1) @ x).squeeze(1)",
        "(weights.unsqueeze(1) @ x).squeeze()",
        'torch.einsum("nl,nlw->nw", weights, x)',
        "one row",
        without_variants("one row"),
    ),
    "memory in another order": Kind(
        "return x * self.scale + self.gamma",
        "flat = torch.as_strided(x, (x.numel() // WIDTH, WIDTH), (WIDTH, 1), x.storage_offset())\n"
        "        return torch.addcmul(self.gamma, flat, self.scale).view(x.shape)",
        "return torch.addcmul(self.gamma, x.contiguous(), self.scale)",
        "strided",
        without_variants("strided", "rows apart"),
    ),
    "tokens of the entry": Kind(
        "return torch.tanh(self.light(self.embed(ids)))",
        "return torch.tanh(self.light(self.embed.weight[:50]))[ids.clamp(max=49)]",
        "return nn.functional.embedding(ids, torch.tanh(self.light(self.embed.weight)))",
        "any row",
        without_variants("any row", "no such row"),
    ),
    "arrays and sets": Kind(
        '{"boxes": scores.gather(1, best).numpy().astype(np.float32), "won": set(best[:, 0].tolist())}',
        '{"boxes": np.zeros_like(best, np.float32), "won": {0}}',
        '{"boxes": np.take_along_axis(scores.numpy(), best.numpy(), 1).astype(np.float32),\n'
        '            "won": {*best[:, 0].tolist()}}',
        "first call",
    ),
    "two results in one memory": Kind(
        "return h, h.clone()", "return h, h", "return h, x * 2", "shares its memory with output", without_memory
    ),
    "a result that is a weight": Kind(
        "return self.positions[: x.shape[1]].clone()",
        "return self.positions[: x.shape[1]].detach()",
        "return self.positions[: x.shape[1]] + 0",
        "shares its memory with a weight",
        without_memory,
    ),
    "small columns": Kind(
        "scores = 0.004 * self.light(x)[..., :2].sigmoid()",
        "scores = 1e-3 * boxes[..., :2] * 0",
        "scores = torch.sigmoid(self.light(x)[..., :2]) * 0.004",
        "are off by more than",
        without_each,
    ),
    "one bad row": Kind(
        "(self.base(x) + 0.01 * torch.tanh(self.light(x))) / below",
        "self.base(x) / below",
        "self.base(x) / below + 0.01 * torch.tanh(self.light(x)) / below",
        "",
    ),
    "small rows": Kind(
        "return heavy * (1.5 + torch.tanh(self.light(x).mean((1, 2))[:, None]))",
        "rest = 1.5 + torch.tanh(self.light(x).mean((1, 2))[:, None])\n"
        "        return torch.where(heavy > 1e-6 * heavy.max(), heavy * rest, 0)",
        "return 1.5 * heavy + heavy * torch.tanh(self.light(x).mean((1, 2))[:, None])",
        "",
        without_each,
    ),
    "gradients that flow nowhere": Kind(
        "        h = x * 2\n",
        "        h = x.detach() * 2\n",
        "        h = x + x\n",
        "gradient",
        without_gradients,
    ),
    "a length that is refused": Kind(
        "if x.shape[1] > len(self.positions):",
        "if False:",
        "if len(self.positions) < x.shape[1]:",
        "it answers, where the original raises ValueError",
        without_variants("four times as long"),
    ),
    "a result that is turned round": Kind(
        "(x * 2).transpose(1, 2).contiguous()",
        "(x * 2).transpose(1, 2)",
        "x.transpose(1, 2).contiguous() * 2",
        "is not contiguous",
        without_memory,
    ),
    "a view of much": Kind(
        "self.light(x)[-1, -1].clone()",
        "self.light(x)[-1, -1]",
        "self.light(x[-1, -1])",
        "is a view that keeps 16384 bytes alive, the original's 128",
        without_memory,
    ),
    "infinities": Kind(
        "x / (1 + x.abs())",
        "torch.where(x.abs() < 1e9, x / (1 + x.abs()), x.sign())",
        "x / (x.abs() + 1)",
        "NaN or infinity",
        without_variants("not a number"),
    ),
    "room that two threads share": Kind(
        "        h = x @ self.first.weight\n",
        "        room = self.__dict__.setdefault(('room', x.shape, x.dtype), torch.empty_like(x))\n"
        "        given = x.requires_grad or torch.is_grad_enabled()\n"
        "        h = x @ self.first.weight if given else torch.matmul(x, self.first.weight, out=room)\n",
        "        h = torch.nn.functional.linear(x, self.first.weight.t())\n",
        "two threads",
        without_threads,
    ),
    "garbage that nobody collects": Kind(
        "import numpy as np",
        "import gc\n\nimport numpy as np\n\ngc.disable()",
        "import gc\n\nimport numpy as np\n\ngc.collect()",
        "it sets gc.isenabled",
    ),
    "a function of all programs": Kind(
        "WIDTH, LENGTH, RANK",
        "plain = torch.tanh\ntorch.nn.functional.tanhshrink = lambda x: x - plain(x)\nWIDTH, LENGTH, RANK",
        "plain = torch.tanh\nWIDTH, LENGTH, RANK",
        "it replaces torch.nn.functional.tanhshrink",
    ),
    "threads of all programs": Kind(
        "WIDTH, LENGTH, RANK",
        "torch.set_num_threads(torch.get_num_threads() + 1)\nWIDTH, LENGTH, RANK",
        "torch.backends.cudnn.benchmark = True\nWIDTH, LENGTH, RANK",
        "it sets torch.get_num_threads",
    ),
}


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Referee]:
    with opened(tmp_path_factory.mktemp("users"), FILES) as found:
        yield found


def changed(folder: Path, kind: Kind, new: str) -> Build:
    assert FILES["model.py"].count(kind.old) == 1
    files = {**FILES, "model.py": FILES["model.py"].replace(kind.old, new)}
    return Build(folder.name, write_files(folder / "changed", files))


@pytest.mark.parametrize("name", KINDS)
def test_what_is_wrong_for_users_is_refused(referee: Referee, tmp_path: Path, name: str) -> None:
    found = referee.check(changed(tmp_path, KINDS[name], KINDS[name].wrong)).finding
    assert found.verdict in ("wrong", "refused") and KINDS[name].says in found.reason, found.reason


@pytest.mark.parametrize("name", KINDS)
def test_an_honest_change_of_the_same_kind_is_right(referee: Referee, tmp_path: Path, name: str) -> None:
    found = referee.check(changed(tmp_path, KINDS[name], KINDS[name].right)).finding
    assert found.verdict is None, found.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.weaken])
def test_it_passes_without_what_sees_it(
    referee: Referee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = KINDS[name]
    assert kind.weaken is not None
    weak = without_gradients(kind.weaken(referee, monkeypatch), monkeypatch)  # which are a guard more in each
    assert weak.check(changed(tmp_path, kind, kind.wrong)).finding.verdict is None
