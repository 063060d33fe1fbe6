"""What a target requires is read from its files, and nothing outside of it is read for that."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.docker import requirements
from sandbox.errors import ImageBuildFailed
from tests.files import write_files

Target = Callable[..., Path]


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return lambda files: write_files(tmp_path / "target", files)


def refused(folder: Path) -> str:
    with pytest.raises(ImageBuildFailed) as caught:
        requirements.read(folder)
    assert caught.value.hint
    return caught.value.message


def test_files_in_pips_format_are_read_with_what_they_include(target: Target) -> None:
    files = {
        "requirements.txt": "# ours\nnumpy>=2  # arrays\n-r sub/other.txt\n--constraint=pins.txt\n\n",
        "sub/other.txt": "einops \\\n    ==0.8 --hash=sha256:ab\n-r ../requirements.txt\n-rlast.txt\n",
        "sub/last.txt": "tqdm\n",
        "pins.txt": "numpy<3\n-r more-pins.txt\n",
        "more-pins.txt": "tqdm<5\n",
        "pyproject.toml": "not read",
    }
    found = requirements.read(target(files))
    assert found.lines == ["numpy>=2", "einops      ==0.8 --hash=sha256:ab", "tqdm"]
    assert found.constraints == ["numpy<3", "tqdm<5"]
    assert found.files == ["requirements.txt", "sub/other.txt", "sub/last.txt", "pins.txt", "more-pins.txt"]
    assert found.as_files()["constraints.txt"] == b"numpy<3\ntqdm<5\n"


def test_a_lock_in_pips_format_goes_before_what_it_was_made_of(target: Target) -> None:
    found = requirements.read(target({"requirements.txt": "numpy\n", "requirements.lock": "numpy==2.1\n"}))
    assert found.lines == ["numpy==2.1"]


LOCAL = """
-e .|--editable=./part|.|.[extra]|./wheels/a-1.whl|part/of/it|a @ file:///a|file:a|git+file:///a|a-1.0-py3-none-any.whl
--find-links wheels/|-f ./wheels|~/a
"""


@pytest.mark.parametrize("line", re.split(r"[|\n]", LOCAL.strip()))
@pytest.mark.guard("image build")
def test_what_lies_in_the_target_or_on_this_disk_is_left_out_and_told(line: str, target: Target) -> None:
    found = requirements.read(target({"requirements.txt": f"numpy\n{line}\n"}))
    assert (found.lines, found.left_out) == (["numpy"], [line])


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("--index-url https://index.example/simple", "https://index.example/simple"),
        ("--extra-index-url=https://index.example/", "https://index.example/"),
        ("a @ https://files.example/a-1.whl", "https://files.example/a-1.whl"),
        ("git+https://code.example/a@v1#egg=a", "git+https://code.example/a@v1#egg=a"),
        ("-e git+ssh://git@code.example/a.git", "git+ssh://git@code.example/a.git"),
        ("https://files.example/a-1.whl ; python_version > '3'", "https://files.example/a-1.whl"),
    ],
)
def test_addresses_are_told(line: str, address: str, target: Target) -> None:
    found = requirements.read(target({"requirements.txt": line}))
    assert (found.lines, found.addresses, found.left_out) == ([line], [address], [])


WITH_PASSWORDS = """
--index-url https://me:secret@index.example/
a @ https://secret@files.example/a.whl
git+ssh://me:secret@code.example/a
--extra-index-url https://${secret}@index.example/
"""


@pytest.mark.parametrize("line", WITH_PASSWORDS.strip().splitlines())
def test_an_address_with_a_password_is_refused_and_not_repeated(line: str, target: Target) -> None:
    said = refused(target({"requirements.txt": line}))
    assert "would stay in the image" in said and "secret" not in said


def test_links_that_lead_out_of_the_target_are_refused(target: Target, tmp_path: Path) -> None:
    write_files(tmp_path, {"outside.txt": "secret\n"})
    folder = target({"inside.txt": "numpy\n", "sub/x": ""})
    (folder / "requirements.txt").symlink_to("inside.txt")
    assert requirements.read(folder).lines == ["numpy"]
    for leads in ("../outside.txt", str(tmp_path / "outside.txt"), "sub/../../outside.txt", "/dev/zero"):
        (folder / "requirements.txt").unlink()
        (folder / "requirements.txt").symlink_to(leads)
        assert "outside of the target" in refused(folder)


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/passwd", "sub/../../outside.txt", "linked/outside.txt"])
@pytest.mark.guard("image build")
def test_includes_that_lead_out_of_the_target_are_refused(name: str, target: Target, tmp_path: Path) -> None:
    write_files(tmp_path, {"outside.txt": "secret\n"})
    folder = target({"requirements.txt": f"-r {name}\n", "sub/x": ""})
    (folder / "linked").symlink_to("..")
    assert "outside of the target" in refused(folder)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (os.mkfifo, "is not a file"),
        (os.mkdir, "is not a file"),
        (lambda path: path.symlink_to("requirements.txt"), "cannot be read"),
    ],
)
def test_what_is_no_file_is_refused_at_once(plant: Callable[[Path], None], said: str, target: Target) -> None:
    folder = target({"sub/x": ""})
    plant(folder / "requirements.txt")
    assert said in refused(folder)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "does not say what it requires"),
        ({"requirements.txt": "-r missing.txt"}, "cannot be read"),
        ({"requirements.txt": "-r https://files.example/more.txt"}, "takes requirements from https://"),
        ({"requirements.txt": b"x" * (5 << 20)}, "exceeds 4 MiB"),
        ({f"r{n}.txt": f"-r r{n + 1}.txt" for n in range(60)} | {"requirements.txt": "-r r0.txt"}, "more than 50"),
        ({"pyproject.toml": "[project"}, "is not TOML"),
        ({"pyproject.toml": "[project]\ndynamic = ['dependencies']"}, "leaves it to a tool"),
        ({"pyproject.toml": "[tool.poetry.dependencies]\ntorch = '^2'"}, "leaves it to a tool"),
        ({"pyproject.toml": "[project]\ndependencies = [1]"}, "does not list its dependencies"),
        ({"pyproject.toml": "[project]\ndependencies = ['-r x']"}, "options for pip"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_a_reason(files: dict[str, str], said: str, target: Target) -> None:
    (folder := target(files)).mkdir(exist_ok=True)
    assert said in refused(folder)


UV = """
numpy 2.1.0 source = { registry = "https://index.example/simple" }
twice 1 source = { registry = "https://index.example/simple" }
twice 2 source = { registry = "https://index.example/simple" }
ours 0 source = { editable = "." }
"""
POETRY = """
numpy 2.1.0 python-versions = "*"
fork 1.0 source = { type = "git", url = "https://code.example/fork.git" }
"""


@pytest.mark.parametrize(("name", "locked"), [("uv.lock", UV), ("poetry.lock", POETRY)])
def test_dependencies_of_a_project_are_bound_by_its_lock(name: str, locked: str, target: Target) -> None:
    project = "[project]\ndependencies = ['numpy>=2', 'einops ; python_version > \"3\"']\n[tool.poetry]\n"
    packages = (line.split(maxsplit=2) for line in locked.strip().splitlines())
    written = "".join(f'[[package]]\nname = "{one}"\nversion = "{of}"\n{more}\n' for one, of, more in packages)
    found = requirements.read(target({"pyproject.toml": project, name: written}))
    assert found.lines == ["numpy>=2", 'einops ; python_version > "3"']
    assert (found.constraints, found.files) == (["numpy==2.1.0"], ["pyproject.toml", name])
