"""The stack stands on the target as it was found, to the byte, and on its HEAD where that can be."""

from __future__ import annotations

import os

import pytest

from agent.repository.stack import Change, Stack
from agent.repository.target import import_target
from tests.agent.fixture_types import RULES, TIME, Lab, text_at
from tools.diff.patch import AppliedPatch, PatchFinding, make_diff

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("how", ["clean", "sparse", "not all copied"])
def test_what_is_not_changed_is_built_on_as_it_is(how: str, lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "pkg/b.py": "2\n", "node_modules/x.js": "1\n"})
    if how == "sparse":
        lab.user_git(target, "sparse-checkout", "init", "--cone")
        assert not (target / "pkg").exists()
    apart = [target / "pkg"] if how == "not all copied" else []
    imported = import_target(target, lab.run / "pristine", leave_out=apart)
    stack = Stack.create(lab.run / "stack", imported, time_unix=TIME)
    assert stack.base == stack.top == stack.facts.head == lab.user_git(target, "rev-parse", "HEAD")
    assert (stack.facts.uncommitted, stack.facts.no_branch_because) == (0, "")


def test_uncommitted_changes_are_one_commit_on_top_and_counted(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "b.py": "2\n", "run.sh": "x\n", "old.py": "x\n", ".gitignore": "*.log\n"})
    (target / "a.py").write_text("changed\n")
    lab.user_git(target, "add", "a.py")
    (target / "a.py").write_text("changed again\n")
    (target / "old.py").unlink()
    (target / "run.sh").chmod(0o755)
    (target / "new file ü.py").write_text("new\n")
    (target / "out.log").write_text("ignored\n")
    stack = lab.new_stack(target, lab.run)
    assert set(stack.facts.modified) == {"a.py", "run.sh"}
    assert stack.facts.deleted == ("old.py",)
    assert stack.facts.untracked == ("new file ü.py",)
    assert stack.facts.uncommitted == 4
    assert stack.git.text("rev-parse", f"{stack.base}^") == lab.user_git(target, "rev-parse", "HEAD")
    assert stack.git.text("log", "-1", "--format=%s", stack.base) == "Uncommitted changes as found"
    held = stack.git.run("ls-tree", "-r", "--name-only", stack.base).stdout.decode().split("\n")[:-1]
    assert held == [".gitignore", "a.py", "b.py", "new file ü.py", "run.sh"]
    assert text_at(stack, stack.base, "a.py") == "changed again\n"
    stack.materialise(stack.top, lab.run / "tree")
    assert lab.contents(lab.run / "tree") == lab.contents(target)


def test_a_submodule_stays_as_it_is(lab: Lab) -> None:
    library = lab.repository({"lib.py": "1\n"}, name="library")
    target = lab.repository({"a.py": "1\n"})
    lab.user_git(target, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub")
    lab.user_git(target, "commit", "--quiet", "--message=submodule")
    (target / "sub" / "lib.py").write_text("changed\n")
    stack = lab.new_stack(target, lab.run)
    assert stack.base == stack.facts.head
    stack.materialise(stack.top, lab.run / "tree")
    assert (lab.run / "tree" / "sub" / "lib.py").read_text() == "changed\n"
    for path in ("sub/lib.py", "sub/new.py"):
        found = stack.materialise_candidate(make_diff(lab.run / "tree", {path: "x\n"}), lab.run / "other", RULES)
        assert isinstance(found, PatchFinding)
        assert "submodule" in found.reason
    # The submodule as a target of its own is a repository like any other.
    (lab.run / "own").mkdir()
    assert lab.new_stack(target / "sub", lab.run / "own").facts.no_branch_because == ""


def test_a_plain_folder_and_a_folder_within_a_repository_get_no_branch_and_a_reason(lab: Lab) -> None:
    target = lab.repository({"examples/a.py": "1\n"})
    stack = lab.new_stack(target / "examples", lab.run)
    assert stack.facts.no_branch_because.startswith("the target is only a folder of the repository")
    (lab.run / "other").mkdir()
    plain = lab.write(lab.tmp_path / "plain", {"a.py": "1\n"})
    stack = lab.new_stack(plain, lab.run / "other")
    assert stack.facts.no_branch_because == "the target is no git repository"
    assert stack.facts.uncommitted == 0


ATTRIBUTES = "* text=auto eol=crlf ident filter=x export-subst\n*.u16 working-tree-encoding=UTF-16\n*.bin -text\n"
AWKWARD: dict[str, str | bytes] = {
    "crlf.py": "a\r\nb\r\n",
    "mixed.py": "a\r\nb\nc\rd",
    "ident.py": "$Id$ $Id: 0123 $ $Format:%H$\n",
    "latin.py": "é\n".encode("latin-1"),
    "wide.u16": "é\n".encode("utf-16"),
    "nul.bin": b"\0\r\n\xff",
    "empty.py": "",
    "no newline.py": "x",
    "größe/日本.py": "1\n",
    'quo"te\\back\ttab.py': "1\n",
    "new\nline.py": "1\n",
    "Icon\r": "1\n",
    "-dash.py": "1\n",
    ":(top)magic.py": "1\n",
    "[a]*?.py": "1\n",
}


@pytest.mark.parametrize("kind", ["plain folder", "tracked", "untracked"])
def test_no_attribute_and_no_name_changes_a_byte(lab: Lab, kind: str) -> None:
    target = lab.write(
        lab.tmp_path / "target", {".gitattributes": ATTRIBUTES, "sub/.gitattributes": "* text\n", **AWKWARD}
    )
    (target / "empty.py").chmod(0o755)
    (target / "link").symlink_to("crlf.py")
    if kind != "plain folder":
        lab.user_git(target, "init", "--quiet")
    if kind == "tracked":
        lab.user_git(target, "-c", "core.attributesFile=/dev/null", "add", "--all", check=False)
        lab.user_git(target, "commit", "--quiet", "--message=first", check=False)
    stack = lab.new_stack(target, lab.run)
    stack.materialise(stack.top, lab.run / "before")
    assert lab.contents(lab.run / "before") == lab.contents(target)
    edits: dict[str, str | bytes | None] = {
        "crlf.py": b"a\r\nB\r\n",
        "latin.py": "è\n".encode("latin-1"),
        "größe/日本.py": "2\n",
        "new.py": "x\r\n",
    }
    stack.accept(lab.change(stack, "one", edits))
    stack.materialise(stack.top, lab.run / "after")
    expected = lab.contents(target)
    for path, content in edits.items():
        expected[path] = (False, content.encode() if isinstance(content, str) else content)
    assert lab.contents(lab.run / "after") == expected


def test_ignored_and_large_files_are_in_every_tree_and_in_no_commit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.repository.base.MAX_UNTRACKED_BYTES", 1000)
    target = lab.repository({"a.py": "1\n", ".gitignore": "*.pt\n/data/\n"})
    lab.write(target, {"model.pt": "weights", "data/set/x.csv": "1,2\n", "dump.csv": "x" * 2000})
    (target / ".git" / "info" / "exclude").write_text("private.txt\n")
    (target / "private.txt").write_text("mine\n")
    stack = lab.new_stack(target, lab.run)
    assert stack.base == stack.facts.head
    assert stack.facts.too_large == ("dump.csv",)
    stack.accept(lab.change(stack, "one", {"a.py": "2\n"}))
    stack.materialise(stack.top, lab.run / "tree")
    for path in ("model.pt", "data/set/x.csv", "dump.csv", "private.txt"):
        assert (lab.run / "tree" / path).read_bytes() == (target / path).read_bytes()
        found = stack.materialise_candidate(make_diff(lab.run / "tree", {path: "x\n"}), lab.run / "other", RULES)
        assert isinstance(found, PatchFinding)
        assert found.kind == "refused"
    assert not (lab.run / "other").exists()


def test_what_the_user_ignores_everywhere_stays_out_of_commits(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    lab.user_git(target, "config", "--global", "core.excludesFile", "~/ignored-by-me")
    (lab.home / "ignored-by-me").write_text(".env\n")
    (target / ".env").write_text("KEY=secret\n")
    assert lab.user_git(target, "status", "--porcelain") == ""
    assert lab.new_stack(target, lab.run).facts.untracked == ()


def test_files_that_git_holds_in_another_form_are_no_noise(lab: Lab) -> None:
    target = lab.repository(
        {
            ".gitattributes": "*.bat eol=crlf\n*.id ident\n*.up filter=upper\n*.bin filter=lfs\n",
            "run.bat": "one\ntwo\n",
            "x.id": "$Id$\n",
            "x.up": "text\n",
            "w.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n",
            "a.py": "1\n",
        }
    )
    lab.user_git(target, "config", "filter.upper.smudge", "tr a-z A-Z")
    lab.user_git(target, "config", "filter.upper.clean", "tr A-Z a-z")
    for path in ("run.bat", "x.id", "x.up"):
        (target / path).unlink()
    past = 1_600_000_000  # older than the index, as in any repository that was not checked out this very moment
    lab.user_git(target, "checkout", "--", ".")
    for path in ("run.bat", "x.id", "x.up"):
        os.utime(target / path, (past, past))
    lab.user_git(target, "update-index", "--refresh")
    (target / "w.bin").write_bytes(b"weights")
    assert (target / "run.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert (target / "x.up").read_text() == "TEXT\n"
    assert (target / "x.id").read_text() != "$Id$\n"
    stack = lab.new_stack(target, lab.run)
    assert stack.base == stack.facts.head
    stack.materialise(stack.top, lab.run / "tree")
    assert (lab.run / "tree" / "x.up").read_text() == "TEXT\n"
    for path in ("x.id", "x.up", "w.bin"):
        found = stack.materialise_candidate(make_diff(lab.run / "tree", {path: "x\n"}), lab.run / "other", RULES)
        assert isinstance(found, PatchFinding)
        assert "could not be stored" in found.reason
    # Line ends are converted at the edge: in the tree as the user has them, in git as git has them.
    edit = make_diff(lab.run / "tree", {"run.bat": b"one\r\nzwei\r\ndrei\n"})
    assert isinstance(stack.materialise_candidate(edit, lab.run / "candidate", RULES), AppliedPatch)
    stack.accept(Change("bat", edit, "Edit", TIME))
    stack.materialise(stack.top, lab.run / "accepted")
    assert (lab.run / "candidate" / "run.bat").read_bytes() == b"one\r\nzwei\r\ndrei\r\n"
    assert (lab.run / "accepted" / "run.bat").read_bytes() == b"one\r\nzwei\r\ndrei\r\n"
    assert text_at(stack, stack.top, "run.bat") == "one\nzwei\ndrei\n"


def test_an_executable_bit_that_means_nothing_is_no_change_and_none_is_brought(lab: Lab) -> None:
    target = lab.write(lab.repository({"a.py": "1\n"}), {"new.py": "1\n"})
    lab.user_git(target, "config", "core.fileMode", "false")
    for name in ("a.py", "new.py"):
        (target / name).chmod(0o777)
    stack = lab.new_stack(target, lab.run)
    assert (stack.facts.modified, stack.facts.untracked) == ((), ("new.py",))
    stack.accept(lab.change(stack, "one", {"a.py": "2\n", "new.py": "2\n"}))
    listed = stack.git.run("ls-tree", "-r", stack.top).stdout.decode().splitlines()
    assert [line.split()[0] for line in listed] == ["100644", "100644"]
    assert "mode" not in stack.diff(stack.top)
