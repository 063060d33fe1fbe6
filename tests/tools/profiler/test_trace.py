"""A trace as torch.profiler writes it is read; one that is cut off, garbled or hostile ends nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.profiler import trace
from tools.profiler.trace import Trace


def event(kind: str, name: str, start: float, duration: float, thread: int = 1, **args: Any) -> dict[str, Any]:
    """`args` with `_` for a space; `External_id` is `External id`."""
    spelled = {key.replace("_", " "): value for key, value in args.items()}
    given = {"cat": kind, "name": name, "pid": 7, "tid": thread, "ts": start, "dur": duration, "args": spelled}
    return {"ph": "X", **given}


SHAPE: dict[str, Any] = dict(stream=3, grid=[4, 2, 1], block=[256, 1, 1], registers_per_thread=64, shared_memory=32768)
GPU = [
    event("user_annotation", "ratchet|call|0", 0, 100),
    event("user_annotation", "ratchet|module|Block|model.py:3|0", 1, 98),
    event("user_annotation", "ratchet|module|Attention|model.py:9|1", 2, 40),
    event("cpu_op", "aten::linear", 3, 20, External_id=1),
    event("cpu_op", "aten::mm", 4, 10, External_id=2, Input_Dims=[[8, 16], [16, 4]], Input_type=["float", "float"]),
    event("cuda_runtime", "hipLaunchKernel", 5, 2, correlation=50, External_id=2),
    event("cpu_op", "aten::add", 50, 5, External_id=3),
    event("kernel", "Cijk_Ailk", 20, 12.5, thread=3, External_id=2, correlation=50, **SHAPE),
    event("kernel", "add_kernel", 60, 1.5, thread=3, External_id=3),
    event("kernel", "of_a_graph", 70, 1.0, thread=3, correlation=51),
    event("cuda_runtime", "hipGraphLaunch", 41, 1, correlation=51),
    event("gpu_memset", "Memset (Device)", 80, 0.5, thread=3, External_id=99),
    event("gpu_user_annotation", "ratchet|call|0", 20, 60, thread=3),
    {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
]


def written(folder: Path, events: list[Any], **more: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **more}))
    return path


def test_a_kernel_is_led_back_to_its_operation_module_and_call(tmp_path: Path) -> None:
    found = trace.read(written(tmp_path, GPU))
    assert found.on_device and found.calls == 1
    assert [launch.name for launch in found.launches] == ["Cijk_Ailk", "add_kernel", "of_a_graph", "Memset (Device)"]
    product, add, graph, cleared = found.launches
    assert product.op is not None and (product.op.name, product.op.shapes) == ("aten::mm", ((8, 16), (16, 4)))
    assert product.module is not None and (product.module.name, product.module.where) == ("Attention", "model.py:9")
    assert (product.workgroups, product.workgroup_size, product.registers, product.lds_bytes) == (8, 256, 64, 32768)
    assert (product.start_us, product.duration_us, product.stream, product.call) == (20, 12.5, 3, 0)
    assert add.module is not None and add.module.name == "Block"
    assert graph.op is None and graph.module is not None
    assert (graph.module.name, graph.call) == ("Attention", 0)  # where the graph was replayed
    assert (cleared.op, cleared.module, cleared.call) == (None, None, None)
    assert any("2 of 4 launches belong to no operation" in note for note in found.notes)


def test_kernels_of_one_operation_share_what_it_does_by_their_time(tmp_path: Path) -> None:
    reduced = event("kernel", "splitK_reduce", 40, 2.5, thread=3, External_id=2)
    found = trace.read(written(tmp_path, [*GPU, reduced]))
    parts = {launch.name: launch.part for launch in found.launches}
    shared = {"Cijk_Ailk": 12.5 / 15, "splitK_reduce": 2.5 / 15}
    assert parts == pytest.approx({**shared, "add_kernel": 1.0, "of_a_graph": 1.0, "Memset (Device)": 1.0})


def test_what_runs_between_calls_is_none_of_them_and_what_autograd_launches_is(tmp_path: Path) -> None:
    between = [
        event("cpu_op", "aten::copy_", 120, 5, External_id=4),
        event("gpu_memcpy", "of an input for the next call", 121, 3, thread=3, External_id=4),
        event("cpu_op", "MmBackward0", 55, 9, thread=2, External_id=5),
        event("kernel", "product_of_gradients", 66, 20, thread=3, External_id=5),
        event("cpu_op", "aten::fill_", 130, 5, thread=2, External_id=6),
        event("kernel", "after_the_call", 131, 3, thread=3, External_id=6),
    ]
    calls = {launch.name: launch.call for launch in trace.read(written(tmp_path, [*GPU, *between])).launches}
    assert calls["product_of_gradients"] == 0 and len(calls) == 5
    unmarked = [each for each in [*GPU, *between] if each.get("cat") != "user_annotation"]
    assert len(trace.read(written(tmp_path, unmarked)).launches) == 7  # there nobody can tell


def test_without_a_device_operations_have_their_own_time(tmp_path: Path) -> None:
    found = trace.read(written(tmp_path, [each for each in GPU if each["ph"] == "X" and each["cat"] == "cpu_op"]))
    assert not found.on_device
    times = [(launch.name, launch.duration_us) for launch in found.launches]
    assert times == [("aten::linear", 10), ("aten::mm", 10), ("aten::add", 5)]


def test_a_real_trace_of_a_real_model(tmp_path: Path) -> None:
    model, mark = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU()), torch.profiler.record_function
    with torch.profiler.profile(record_shapes=True) as seen:
        for index in range(2):
            with mark(f"{trace.MARK}call|{index}"), mark(f"{trace.MARK}module|Sequential|model.py:1|0"):
                model(torch.ones(4, 32))
    seen.export_chrome_trace(str(tmp_path / "trace.json"))
    found = trace.read(tmp_path / "trace.json")
    assert (found.calls, found.on_device, found.notes) == (2, False, [])
    product = next(launch for launch in found.launches if launch.name == "aten::addmm")
    assert product.op is not None and product.op.shapes[:3] == ((64,), (4, 32), (32, 64))
    assert product.module is not None and product.module.name == "Sequential" and product.call == 0
    assert product.op.values[3:] == ("1", "1")  # beta and alpha
    assert all(launch.duration_us >= 0 for launch in found.launches)


@pytest.mark.parametrize("share", [0.2, 0.9, 0.999])
def test_a_trace_that_is_cut_off_is_read_as_far_as_it_goes(share: float, tmp_path: Path) -> None:
    path = written(tmp_path, GPU)
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    found = trace.read(path)
    assert len(found.launches) <= 4
    assert share == 0.999 or "the trace is cut off" in found.notes


@pytest.mark.parametrize(
    "text",
    ["", "{}", "null", '{"traceEvents": []}', '{"traceEvents": 7}', "\x00\xff", '{"traceEvents": [' + "[" * 9000],
)
def test_what_is_no_trace_holds_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(text)
    found = trace.read(tmp_path / "trace.json")
    assert found.launches == [] and "the trace holds nothing that ran" in found.notes


def test_garbled_events_are_counted_and_passed_over(tmp_path: Path) -> None:
    garbled: list[Any] = [
        {"ph": "X", "cat": "kernel", "name": "no times"},
        {"ph": "X", "cat": "kernel", "name": "not a number", "ts": "NaN", "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "backwards", "ts": 1, "dur": -5},
        {"ph": "X", "cat": 3, "name": [], "ts": 1, "dur": 1},
        *(7, None, "text", []),
    ]
    odd = event("kernel", "odd", 1, 1, grid=["a"], block=3, stream="x", External_id=[1], Input_Dims=7)
    found = trace.read(written(tmp_path, [*garbled, *GPU, odd]))
    assert len(found.launches) == 5
    assert any(note.startswith("4 events") for note in found.notes)


def test_names_are_made_safe(tmp_path: Path) -> None:
    found: Trace = trace.read(written(tmp_path, [event("kernel", "\x1b[31mred\x07" + "x" * 100_000, 1, 1)]))
    name = found.launches[0].name
    assert "\x1b" not in name and "\x07" not in name and len(name) <= 4000


def test_a_file_beyond_all_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_BYTES", 100)
    assert "larger than" in trace.read(written(tmp_path, GPU)).notes[0]
    monkeypatch.setattr(trace, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(trace, "MOST_EVENTS", 3)
    assert "first 3 events" in trace.read(written(tmp_path, GPU)).notes[0]
