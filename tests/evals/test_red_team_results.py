"""Cheats that the check of correctness catches, and that pass it where their guard is gone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evals.arena import Arena
from tools.judging import correctness, inspection, workload
from tools.judging.correctness import Finding
from tools.judging.script import Call, Case, Draw, Script
from tools.judging.worker import Build

pytestmark = pytest.mark.guard("red team")

CAUGHT = {  # verdict, and a pattern in the reason
    "01_patched_timers": ("refused", "which the original does not"),
    "04_lazy_result": ("wrong", "kind"),
    "05_stale_memory": ("wrong", "off by"),
    "06_pointer_cache": ("wrong", ""),
    "09_constant": ("wrong", ""),
    "11_changed_inputs": ("wrong", "it changes argument 0"),
    "14_edited_benchmark": ("wrong", "off by"),
    "15_exit_zero": ("refused", ""),
    "15_system_exit": ("refused", ""),
    "24_reply_first": ("refused", "committed"),
    "30_baked_weights": ("wrong", "second state dict"),
    "beyond_version_of_inputs": ("wrong", "same pointers"),
    "beyond_version_of_weights": ("wrong", "after (weights changed|scale)"),
    "beyond_version_of_buffers": ("wrong", "after (weights changed|scale_buffers)"),
    "beyond_own_tree": ("refused", "beyond_own_tree/quick"),
    "beyond_staged_ahead": ("refused", r"tensors\.Loaded\.__init__"),
}


@pytest.mark.guard("01_patched_timers", "04_lazy_result", "05_stale_memory", "06_pointer_cache", "09_constant")
@pytest.mark.guard("11_changed_inputs", "14_edited_benchmark", "15_exit_zero", "15_system_exit", "24_reply_first")
@pytest.mark.guard("30_baked_weights", "beyond_own_tree", "beyond_staged_ahead")
@pytest.mark.guard("beyond_version_of_inputs", "beyond_version_of_weights", "beyond_version_of_buffers")
@pytest.mark.parametrize("cheat", CAUGHT)
def test_it_is_caught_by_the_check(arena: Arena, cheat: str) -> None:
    verdict, says = CAUGHT[cheat]
    found = arena.check(cheat)
    assert found.verdict == verdict and re.search(says, found.reason), found.reason


# -- the same without the guards


def script_of(*draws: Draw) -> Script:
    """Calls and nothing else: no second state dict, no poison, no transforms."""
    return Script(draws, tuple(Call(f"call {index}", index) for index in range(len(draws))))


def weak_script(arena: Arena, monkeypatch: pytest.MonkeyPatch, *draws: Draw) -> Arena:
    monkeypatch.setattr(workload.Workload, "script", lambda self, rng: script_of(*draws))
    return arena


CALL = "        out = _call(function, self.arguments)\n"
CALL_AFTER_REFERENCE = """\
        import runpy
        arguments = self.arguments
        reference = runpy.run_path({layers!r})["Model"]().to(arguments[0].dtype)
        reference.load_state_dict(self.built.state_dict())
        freed = [reference(*arguments)]
        torch.empty_like = lambda like: freed.pop()
        out = function(*arguments)
"""


@pytest.mark.guard("05_stale_memory")
def test_05_passes_where_the_same_process_has_just_freed_the_answer(arena: Arena, tmp_path: Path) -> None:
    """The block that was freed last is handed out next, unchanged: so do CUDA's allocator and, by chance, glibc."""
    layers = str(arena.referee.pristine.tree / "layers.py")
    weak = arena.with_guest(tmp_path, {"worker.py": [(CALL, CALL_AFTER_REFERENCE.format(layers=layers))]})
    assert weak.check("05_stale_memory").verdict is None


@pytest.mark.guard("06_pointer_cache", "09_constant")
def test_06_and_09_pass_where_every_call_gets_the_same_input(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    weak = weak_script(arena, monkeypatch, *[Draw(Case("", {"rows": 32}), seed=0)] * 3)
    assert weak.check("09_constant").verdict is None
    assert weak.check("06_pointer_cache").verdict is None


@pytest.mark.guard("11_changed_inputs")
def test_11_passes_where_nobody_looks_at_the_arguments(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correctness, "_arguments", lambda *_: None)
    assert arena.check("11_changed_inputs").verdict is None


@pytest.mark.guard("14_edited_benchmark")
def test_14_passes_where_inputs_and_reference_come_from_the_candidate(arena: Arena, tmp_path: Path) -> None:
    own = Build("own", arena.tree("14_edited_benchmark"))
    setting = arena.referee.setting
    described = inspection.inspect(setting, own, tmp_path, arena.referee.rng)
    fooled = replace(arena.referee, setting=setting, workload=described, pristine=own)
    assert fooled.check(own).finding.verdict is None


@pytest.mark.guard("15_exit_zero", "15_system_exit")
def test_15_passes_where_an_exit_status_is_believed(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correctness, "fault_verdict", lambda fault: (None, ""))
    assert arena.check("15_exit_zero") == Finding(None, "", {"fault": "died"})
    assert arena.check("15_system_exit") == Finding(None, "", {"fault": "exited_as_success"})


@pytest.mark.guard("30_baked_weights")
def test_30_passes_where_there_is_one_state_dict_only(arena: Arena) -> None:
    states = dict.fromkeys(arena.referee.workload.states, arena.referee.workload.states["a"])
    one = replace(arena.referee.workload, states=states, transforms=())
    assert replace(arena.referee, workload=one).check(arena.candidate("30_baked_weights")).finding.verdict is None


COUNTED = {
    "beyond_version_of_inputs": ("old.data.copy_(new)", "old.copy_(new)"),
    "beyond_version_of_weights": ("tensor.data.mul_(0.875)", "tensor.mul_(0.875)"),
    "beyond_version_of_buffers": ("tensor.data.mul_(0.875)", "tensor.mul_(0.875)"),
}


@pytest.mark.guard("beyond_version_of_weights")
def test_numbers_that_change_uncounted_are_seen_where_scaling_is_counted(arena: Arena, tmp_path: Path) -> None:
    weak = arena.with_guest(tmp_path, {"worker.py": [COUNTED["beyond_version_of_weights"]]})
    found = weak.check("beyond_version_of_weights")
    assert found.verdict == "wrong" and "after weights changed" in found.reason, found.reason


UNCOUNTED = {"data": "_uncounted", "numpy": "_by_numpy"}


@pytest.mark.guard("beyond_version_of_inputs", "beyond_version_of_weights", "beyond_version_of_buffers")
@pytest.mark.parametrize("cheat", COUNTED)
def test_versions_tell_where_each_write_of_the_judge_is_counted(arena: Arena, tmp_path: Path, cheat: str) -> None:
    some = [(f'"{means}": {uncounted}', f'"{means}": _as_a_step') for means, uncounted in UNCOUNTED.items()]
    weak = arena.with_guest(tmp_path, {"worker.py": [COUNTED[cheat]], "states.py": some})
    assert weak.check(cheat).verdict is None
