"""The packs are valid, their links lead somewhere, each step has its section; they are installed where agents look."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from skills_ref import validate

from agent.llm.prompt import rules
from agent.skill_packs import MAIN, Pack, Packs, PackUnusable, found_in
from agent.skill_packs.commands import install_into
from agent.step_names import STEPS
from tests.files import write_files
from tools.judging import accept

ROOT = Path(__file__).parents[3]
PACKS = Packs.of().packs
NAMES = {"amd-kernel-optimization", "honest-benchmarking", "ratchet", "rocm-profiling", "triton-on-rocm"}
GOOD = """---
name: mine
description: Says what I know. Use when asked.
---
# Mine

## One

first

## Two

second
"""


def texts() -> list[Path]:
    return [path for pack in PACKS for path in sorted(pack.folder.rglob("*.md"))]


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.name)
def test_a_pack_is_valid_and_short(pack: Pack) -> None:
    assert validate(pack.folder) == []
    body = pack.text().split("\n---\n", 1)[1]
    assert len(body.splitlines()) < 500
    assert "When" in pack.description or "when" in pack.description, "it says when to use it"
    unmentioned = [name for name in pack.files() if name.startswith("references/") and name not in body]
    assert not unmentioned, "a reference that nobody is led to"


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT / "skills")))
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", prose)
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing
    outside = [link for link in links if not (path.parent / link).resolve().is_relative_to(ROOT / "skills")]
    assert not outside, "a pack is installed without the rest of the repository"


@pytest.mark.parametrize("step", STEPS)
def test_each_step_has_its_section(step: str) -> None:
    section = Packs.of().get("amd-kernel-optimization").section(step)
    assert 5 < len(section.splitlines()) < 60 and "\n### " not in section


def test_the_rules_that_a_model_is_told_name_every_pack_and_the_rule_of_acceptance() -> None:
    said = rules(Packs.of())
    assert said == rules(Packs.of()) and all(name in said for name in NAMES)
    assert len(said) < 16_000, "it is part of every prompt"
    *looks, last = map(str, sorted(accept.LOOKS))
    assert f"{', '.join(looks)} or {last} restarts" in " ".join(Packs.of().get("ratchet").text().split())


def test_a_section_ends_where_its_level_does_and_code_has_no_headings(tmp_path: Path) -> None:
    text = GOOD.replace("first\n", "first\n\n### Within\n\n```python\n# no heading\n## Two\n```\n")
    pack = Pack(write_files(tmp_path / "mine", {MAIN: text}))
    assert pack.section("One").startswith("first") and "## Two\n```" in pack.section("One")
    assert pack.section("Two") == "second" and pack.section("Within").startswith("```python")
    with pytest.raises(PackUnusable, match="Three"):
        pack.section("Three")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"mine/SKILL.md": "# Mine\n"},
        {"mine/SKILL.md": GOOD.replace("name: mine", "name: other")},
        {"mine/SKILL.md": GOOD.replace("description: Says", "description: [Says")},
        {"mine/SKILL.md": GOOD.replace("description: Says what I know. Use when asked.\n", "")},
        {"ratchet/SKILL.md": GOOD.replace("name: mine", "name: ratchet")},
    ],
    ids=["empty", "no front matter", "other name", "no yaml", "no description", "taken"],
)
def test_what_is_no_pack_is_said(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(PackUnusable):
        Packs.of([write_files(tmp_path / "packs", files)])


def test_a_users_own_pack_is_offered_with_ours(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "mine", {MAIN: GOOD, "references/more.md": "more", "../secret": "secret"})
    packs = Packs.of([folder])
    assert "Says what I know." in packs.listed() and packs.read("mine/references/more.md") == "more"
    (folder / "link.md").symlink_to(tmp_path / "secret")
    for name in ("mine/../secret", "mine/link.md", "mine//etc/passwd", "mine/none.md", "none"):
        with pytest.raises(PackUnusable):
            packs.read(name)
    assert [pack.name for pack in found_in(folder)] == ["mine"] and "link.md" not in found_in(folder)[0].files()


def test_packs_are_copied_whole_and_what_was_changed_is_overwritten_only_when_asked_to(tmp_path: Path) -> None:
    install_into(tmp_path, PACKS)
    for name in NAMES:
        assert validate(tmp_path / name) == []
    assert (tmp_path / "triton-on-rocm" / "assets" / "rms_norm.py").exists()
    assert all("was there already" in line for line in install_into(tmp_path, PACKS))
    (tmp_path / "ratchet" / MAIN).write_text("mine")
    with pytest.raises(PackUnusable, match="differs"):
        install_into(tmp_path, PACKS)
    install_into(tmp_path, PACKS, replace=True)
    assert (tmp_path / "ratchet" / MAIN).read_text() == Packs.of().read("ratchet")


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(cwd / "home"), "PYTHONPATH": str(ROOT)}
    agent = [sys.executable, "-m", "agent"]
    return subprocess.run([*agent, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_the_command_line_lists_validates_installs_and_exports(tmp_path: Path) -> None:
    assert all(name in command("skills", "list", cwd=tmp_path).stdout for name in NAMES)
    assert command("skills", "validate", cwd=tmp_path).stdout.count(": valid") == len(NAMES)
    bad = write_files(tmp_path / "bad", {"Bad/SKILL.md": GOOD.replace("name: mine", "name: Bad")})
    assert command("skills", "validate", str(bad), cwd=tmp_path).returncode == 96
    places = {"claude": ".claude/skills", "codex --user": "home/.agents/skills", "elsewhere": "elsewhere"}
    for agent, place in places.items():
        assert command("skills", "install", "--for", *agent.split(), cwd=tmp_path).returncode == 0
        assert (tmp_path / place / "ratchet" / MAIN).exists()
    exported = json.loads(command("skills", "export", cwd=tmp_path).stdout)
    assert set(exported["steps"]) == set(STEPS) and exported["instructions"] == rules(Packs.of())
    names = [tool["function"]["name"] for tool in exported["tools"]]
    assert {"read_file", "verify", "measure", "submit", "give_up", "skill", "run", "isa"} <= set(names)
    assert [each["name"] for each in exported["functions"]] == names


def test_the_plugin_manifests_and_marketplaces_name_what_is_there() -> None:
    for place in (".claude-plugin", ".codex-plugin"):
        manifest = json.loads((ROOT / place / "plugin.json").read_text())
        assert manifest["name"] == "ratchet" and (ROOT / manifest["skills"]).resolve() == ROOT / "skills"
        servers = json.loads((ROOT / manifest["mcpServers"]).read_text())["mcpServers"]
        assert servers["ratchet"]["command"] == "agent"
    for file in (".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json"):
        (plugin,) = json.loads((ROOT / file).read_text())["plugins"]
        assert plugin["name"] == "ratchet"
