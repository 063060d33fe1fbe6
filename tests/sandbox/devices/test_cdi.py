"""What an engine can be asked for by name is read from its specification files, JSON and YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.devices.cdi import cdi_devices
from tests.files import write_files

AMD = """{"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}]},
"devices": [{"name": "all", "containerEdits": {}}, {"name": "10"}, {"name": "9"}, {"name": 8}, "x"]}"""
# As nvidia-ctk writes it: keys in alphabetical order, lists level with their key.
NVIDIA = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    - update-ldcache
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      name: deeper
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b  # the same
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: all
kind: nvidia.com/gpu
"""
INDENTED = """\
kind: "amd.com/gpu"   # written by hand

devices:
    # the first
    - name: '0'
      containerEdits:
          deviceNodes:
              - path: /dev/kfd
    -   containerEdits: {}
        name: all
annotations: {}
"""


def test_nothing_is_there_where_no_engine_was_told_of_gpus(tmp_path: Path) -> None:
    assert (cdi_devices(tmp_path).devices, cdi_devices(tmp_path).notes) == ({}, ())


def test_names_are_listed_by_kind_numbers_first(tmp_path: Path) -> None:
    write_files(tmp_path, {"etc/cdi/amd.json": AMD, "var/run/cdi/nvidia.yaml": NVIDIA})
    found = cdi_devices(tmp_path)
    assert found.notes == ()
    assert found.devices == {
        "amd.com/gpu": ("9", "10", "all"),
        "nvidia.com/gpu": ("0", "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b", "all"),
    }


def test_yaml_is_read_also_when_it_is_indented(tmp_path: Path) -> None:
    write_files(tmp_path, {"etc/cdi/amd.yaml": INDENTED})
    assert cdi_devices(tmp_path).devices == {"amd.com/gpu": ("0", "all")}


def test_two_files_of_one_kind_are_taken_together_and_other_kinds_left_out(tmp_path: Path) -> None:
    one = '{"kind": "amd.com/gpu", "devices": [{"name": "1"}]}'
    other, intel = one.replace("1", "2"), one.replace("amd", "intel")
    write_files(tmp_path, {"etc/cdi/a.json": one, "var/run/cdi/b.json": other, "etc/cdi/i.json": intel})
    assert cdi_devices(tmp_path).devices == {"amd.com/gpu": ("1", "2")}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.json", AMD[:150]),
        ("list.json", "[]"),
        ("deep.json", "[" * 100_000),
        ("flow.yaml", 'kind: amd.com/gpu\ndevices: [{name: "0"}]\n'),
        ("mixed.yaml", "kind: amd.com/gpu\ndevices:\n- {name: '0'}\n- name: all\n"),
        ("anchor.yaml", "kind: amd.com/gpu\ndevices:\n- name: &n all\n"),
        ("kind.yaml", "devices:\n- name: all\n"),
        ("empty.yaml", ""),
        ("binary.yaml", "\x00\x01devices"),
    ],
)
def test_what_is_not_understood_is_said_and_not_guessed(name: str, content: str, tmp_path: Path) -> None:
    write_files(tmp_path, {f"etc/cdi/{name}": content, "etc/cdi/readme.txt": "kind: amd.com/gpu"})
    found = cdi_devices(tmp_path)
    assert found.devices == {}
    assert len(found.notes) == 1
    assert name in found.notes[0]


def test_a_name_of_many_digits_is_a_name(tmp_path: Path) -> None:
    long = "9" * 5000
    write_files(
        tmp_path, {"etc/cdi/a.json": '{"kind": "amd.com/gpu", "devices": [{"name": "%s"}]}'.replace("%s", long)}
    )
    assert cdi_devices(tmp_path).devices == {"amd.com/gpu": (long,)}


def test_a_link_to_nowhere_and_a_folder_are_notes(tmp_path: Path) -> None:
    write_files(tmp_path, {"etc/cdi/folder.yaml/x": ""})
    (tmp_path / "etc/cdi/gone.json").symlink_to("nowhere")
    assert len(cdi_devices(tmp_path).notes) == 2
