"""The files of a candidate are read and changed by tools that lead nowhere else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.files import write_files
from tools.diff.patch_rules import PatchRules
from tools.registry import Answer, Registry
from tools.registry import files as file_tools
from tools.registry.worktree import MAX_FILE_BYTES, MAX_LISTED, Worktree

MODEL = "import torch\n\n\ndef forward(x):\n    y = x.clone()\n    return y + x.clone()\n"
FILES = {"model.py": MODEL, "bench.py": "import model\n", "pkg/a.py": "A = 1\r\nB = 2\r\n", ".git/config": "secret"}


@pytest.fixture
def session(tmp_path: Path) -> Any:
    base, work = (write_files(tmp_path / name, FILES) for name in ("base", "work"))
    (work / "outside").symlink_to("/etc")
    rules = PatchRules(protected=lambda path: "it is the entry" if path == "bench.py" else None)
    return SimpleNamespace(worktree=Worktree(base, work, rules))


def answer(session: Any, name: str, **arguments: Any) -> Answer:
    return Registry(file_tools.TOOLS).call(session, name, arguments)


def said(session: Any, name: str, **arguments: Any) -> str:
    found = answer(session, name, **arguments)
    assert found.worked, found.text
    return found.text


def refused(session: Any, name: str, **arguments: Any) -> str:
    found = answer(session, name, **arguments)
    assert not found.worked, found.text
    return found.text


def test_files_are_listed_and_read_with_numbered_lines(session: Any) -> None:
    assert said(session, "list_files") == "bench.py\nmodel.py\npkg/a.py", "no links, no version control"
    assert said(session, "list_files", path="pkg/") == "pkg/a.py"
    assert "\n4: def forward(x):\n5:     y = x.clone()\n" in said(session, "read_file", path="model.py")
    part = said(session, "read_file", path="model.py", first_line=2, lines=1)
    assert part == "2: \n[… 4 more lines: read_file with first_line=3 …]"
    assert "has 6 lines" in refused(session, "read_file", path="model.py", first_line=8)


def test_what_is_long_is_shown_in_parts(session: Any) -> None:
    work = session.worktree.work
    (work / "long.py").write_text("x = 1  # and a comment\n" * 5000)
    first = said(session, "read_file", path="long.py", lines=2000)
    assert first.endswith(" more lines: read_file with first_line=" + first.rpartition("=")[2]) and len(first) < 16_100
    (work / "huge.txt").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert "more than is read" in refused(session, "read_file", path="huge.txt")
    for number in range(MAX_LISTED + 5):
        (work / f"f{number}").touch()
    assert "more; name a folder" in said(session, "list_files")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/etc/passwd", "is no path inside the tree"),
        ("../base/model.py", "is no path inside the tree"),
        ("outside/passwd", "leads through the link outside"),
        ("outside", "leads through the link outside"),
        ("x" * 300, "is no path"),
        ("a//b", "is no path inside the tree"),
        ("none/model.py", "There is model.py."),
        ("pkg", "is no file"),
    ],
)
def test_paths_lead_nowhere_else(session: Any, path: str, why: str) -> None:
    assert why in refused(session, "read_file", path=path)
    if path not in ("none/model.py", "pkg"):
        assert "path" in refused(session, "write_file", path=path, content="x") or "link" in why
        assert refused(session, "list_files", path=path) and refused(session, "search", pattern="x", path=path)
    assert session.worktree.diff() == ""


def test_lines_are_found(session: Any) -> None:
    found = said(session, "search", pattern=r"x\.clone\(\)")
    assert found == "model.py:5:    y = x.clone()\nmodel.py:6:    return y + x.clone()"
    assert said(session, "search", pattern="clone()", literal=True, path="model.py").count("\n") == 1
    assert said(session, "search", pattern="secret") == "no line matches", "version control is not shown"
    assert said(session, "search", pattern="def", path="model.py") == "model.py:4:def forward(x):"
    assert "literal=true" in refused(session, "search", pattern="(")
    assert "no NUL" in refused(session, "search", pattern="\0")
    (session.worktree.work / "many.txt").write_text("hit\n" * 500)
    assert "400 more" in said(session, "search", pattern="hit")


def test_edits_become_a_diff(session: Any) -> None:
    assert said(session, "diff") == "nothing is changed yet"
    said(session, "edit_file", path="model.py", old="y = x.clone()", new="y = x")
    said(session, "edit_file", path="pkg/a.py", old="A = 1\nB = 2", new="A = 3\nB = 2")
    said(session, "write_file", path="new/kernel.py", content="K = 1\n")
    diff = said(session, "diff")
    assert "-    y = x.clone()\n+    y = x\n" in diff and "+A = 3\r\n" in diff and "new/kernel.py" in diff
    said(session, "remove_file", path="new/kernel.py")
    assert "new/kernel.py" not in said(session, "diff")
    assert (session.worktree.base / "model.py").read_text() == MODEL
    said(session, "edit_file", path="pkg/a.py", old="B = 2", new="B = 2\nC = 3")
    assert session.worktree.read("pkg/a.py") == "A = 3\r\nB = 2\r\nC = 3\r\n"


def test_an_edit_must_name_one_place(session: Any) -> None:
    assert "2 times, in lines 5, 6" in refused(session, "edit_file", path="model.py", old="x.clone()", new="x")
    assert "2 times" in said(session, "edit_file", path="model.py", old="x.clone()", new="x", every=True)
    assert "like line 4" in refused(session, "edit_file", path="model.py", old="  def forward(x):\n  y", new="")
    assert "changed by an edit before" in refused(session, "edit_file", path="model.py", old="nothing", new="")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("bench.py", "it is the entry"),
        (".git/config", "version control"),
        ("sitecustomize.py", "before the program"),
        ("a/b.so", "compiled"),
        ("model.py/x.py", "is a file, not a folder"),
        ("pkg", "is a folder"),
    ],
)
def test_what_no_candidate_may_change_stays(session: Any, path: str, why: str) -> None:
    assert why in refused(session, "write_file", path=path, content="x")
    assert session.worktree.touched == set()


HIDDEN = [".env", "app/.env.local", "prod.env", ".netrc", ".aws/config"]
SECRETS = [*HIDDEN, "keys/server.pem", "id_rsa", "Credentials", "credentials.json", "secrets.toml"]
NO_SECRETS = [".env.example", "environment.py", "secrets.py", "credentials.py", "tokens.txt", "monkey.json"]


@pytest.mark.guard("secret files")
def test_a_file_that_may_hold_secrets_is_neither_shown_nor_found_nor_written_over(session: Any) -> None:
    for place in (session.worktree.base, session.worktree.work):
        write_files(place, {path: f"{path} holds hunter2\n" for path in (*SECRETS, *NO_SECRETS)})
    for path in SECRETS:
        for name, arguments in (
            ("read_file", {}),
            ("write_file", {"content": ""}),
            ("remove_file", {}),
            ("edit_file", {"old": "h", "new": "i", "every": True}),
            ("search", {"pattern": "hunter"}),
        ):
            assert f"{path} is not shown: it may hold secrets" in refused(session, name, path=path, **arguments)
    for path in NO_SECRETS:
        assert "hunter2" in said(session, "read_file", path=path)
    found = said(session, "search", pattern="hunter[0-9]").splitlines()
    assert sorted(line.partition(":")[0] for line in found) == sorted(NO_SECRETS)
    assert said(session, "diff") == "nothing is changed yet"


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
@pytest.mark.guard("secret files")
def test_no_other_sign_ends_a_line_and_shows_a_secret(session: Any, end: str) -> None:
    write_files(session.worktree.work, {".env": f"# keys{end}KEY=hunter2{end}", "a.txt": f"no{end}KEY\nKEY=3\r\n"})
    assert said(session, "search", pattern="KEY") == f"a.txt:1:no{end}KEY\na.txt:2:KEY=3"
    assert said(session, "read_file", path="a.txt") == f"1: no{end}KEY\n2: KEY=3"
    assert "like line 2" in refused(session, "edit_file", path="a.txt", old="KEY=3\n\n", new="")


@pytest.mark.guard("secret files")
def test_a_newline_in_a_name_does_not_hide_that_it_may_hold_secrets(session: Any) -> None:
    write_files(session.worktree.work, {".aws/a\nb": "hunter2\n", "c\nd": "hunter3\n"})
    assert said(session, "search", pattern="hunter") == "c\nd:1:hunter3"


@pytest.mark.guard("bounded edits")
def test_an_edit_of_every_place_is_measured_before_it_is_made(session: Any) -> None:
    said(session, "write_file", path="a.py", content="a" * 1_000_000)
    told = refused(session, "edit_file", path="a.py", old="a", new="b" * 30_000, every=True)
    assert "would have 30000000000 bytes" in told
    assert "1000000 times" in refused(session, "edit_file", path="a.py", old="a", new="b"), "and found at once"
    large = "x" * (session.worktree.rules.max_file_bytes + 1)
    assert "are allowed" in refused(session, "write_file", path="large.py", content=large)


@pytest.mark.guard("bounded edits")
def test_what_is_changed_has_a_largest_size_over_all_files(session: Any) -> None:
    large, rules = "x\n" * 1_000_000, session.worktree.rules
    for number in range(4):
        said(session, "write_file", path=f"f{number}.py", content=large)
    told = refused(session, "write_file", path="f4.py", content=large)
    assert f"{rules.max_diff_bytes} are allowed for a candidate" in told and "`reset`" in told
    said(session, "write_file", path="f3.py", content="y = 1\n")
    said(session, "write_file", path="f4.py", content="y = 1\n")
    assert len(session.worktree.diff()) <= 2 * rules.max_diff_bytes, "a sign for each line, which may be empty else"
    for number in range(5, rules.max_files):
        said(session, "write_file", path=f"f{number}.py", content="")
    assert "no candidate changes more" in refused(session, "write_file", path="f.py", content="")


def test_a_long_diff_and_a_long_line_say_how_to_see_more(session: Any) -> None:
    said(session, "write_file", path="new.py", content="".join(f"x = {n:05}\n" for n in range(2000)))
    first = said(session, "diff")
    following = int(first.rpartition("diff with first_line=")[2].split()[0])
    assert f"x = {following:05}" not in first
    assert said(session, "diff", first_line=following).startswith(f"+x = {following - 7:05}")
    (session.worktree.work / "one_line.json").write_text("7" * 100_000)
    assert "`run` shows all of it" in said(session, "read_file", path="one_line.json")
