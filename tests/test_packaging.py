"""What is in the repository is in the distribution too."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.import_rules import DATA
from tools.rewrite import ops_package

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOPS = ("agent", "evals", "sandbox", "skills", "tools")


def test_every_package_is_listed() -> None:
    found = {path.parent.relative_to(ROOT).as_posix() for top in TOPS for path in (ROOT / top).rglob("__init__.py")}
    packages = {name.replace("/", ".") for name in found if not name.startswith(DATA)}
    assert packages == set(PROJECT["tool"]["setuptools"]["packages"]), "extend [tool.setuptools] packages"


def test_every_folder_of_our_code_is_a_package() -> None:
    code = [path.relative_to(ROOT).as_posix() for top in TOPS for path in (ROOT / top).rglob("*.py")]
    folders = {(ROOT / path).parent for path in code if not path.startswith(DATA)}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def test_every_folder_of_data_is_in_the_distribution() -> None:
    listed = PROJECT["tool"]["setuptools"]["package-data"]
    patterns = [f"{package}/{pattern}" for package, patterns in listed.items() for pattern in patterns]
    files = [pattern for pattern in patterns if "*" not in pattern]
    assert all((ROOT / file).is_file() for file in files)
    assert sorted({*patterns} - {*files}) == sorted(f"{folder}**/*" for folder in DATA)


def test_the_skills_are_found_as_data() -> None:
    skills = importlib.resources.files("skills")
    assert any(pack.joinpath("assets").is_dir() for pack in skills.iterdir())


def test_the_lock_pins_what_is_depended_on_and_never_torch() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][\w.]*", line) for line in lines)
    pinned = {line.partition("==")[0] for line in lines}
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(name for extra in extras for name in extra)]
    assert {re.split(r"[><=]", name)[0] for name in wanted} <= pinned
    assert not pinned & {"torch", "triton"}


def test_what_is_installed_here_is_what_is_locked() -> None:
    lock = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line)
    names = ("langgraph", "pydantic", "libcst", "pytest", "ruff", "mypy")
    assert {name: importlib.metadata.version(name) for name in names} == {name: lock[name] for name in names}


def test_what_a_runtime_file_imports_comes_with_it(tmp_path: Path) -> None:
    assets = [value for value in vars(ops_package).values() if isinstance(value, ops_package.Asset)]
    assert len(assets) > 10
    for number, asset in enumerate(assets):
        package = tmp_path / f"alone_{number}"
        package.mkdir()
        for name, text in asset.files().items():
            (package / name).write_text(text, encoding="utf-8")
    lines = [f"from alone_{number}.{asset.module} import {asset.symbol}" for number, asset in enumerate(assets)]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
