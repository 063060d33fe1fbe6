"""The stack stands on the target as it was found, to the byte, and on its HEAD where that can be."""

from __future__ import annotations

import pytest

from agent.repository.stack import Stack
from agent.repository.target import import_target
from tests.agent.lab import RULES, TIME, Lab, contents, text_at
from tests.files import write_files
from tools.diff.patch import AppliedPatch, make_diff


@pytest.mark.parametrize("how", ["clean", "sparse", "not all copied"])
def test_what_is_not_changed_is_built_on_as_it_is(how: str, lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "pkg/b.py": "2\n", "node_modules/x.js": "1\n"})
    if how == "sparse":
        lab.git(target, "sparse-checkout", "init", "--cone")
        assert not (target / "pkg").exists()
    apart = [target / "pkg"] if how == "not all copied" else []
    imported = import_target(target, lab.run / "pristine", leave_out=apart)
    stack = Stack.create(lab.run / "stack", imported, time_unix=TIME)
    assert stack.base == stack.top == stack.facts.head == lab.git(target, "rev-parse", "HEAD")
    assert (stack.facts.uncommitted, stack.facts.no_branch_because) == (0, "")


def test_uncommitted_changes_are_one_commit_on_top_and_counted(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n", "b.py": "2\n", "run.sh": "x\n", "old.py": "x\n", ".gitignore": "*.log\n"})
    lab.sh(target, "echo changed > a.py; git add a.py; echo changed again > a.py; rm old.py; chmod +x run.sh")
    write_files(target, {"new file ü.py": "new\n", "out.log": "ignored\n"})
    stack = lab.new_stack(target)
    assert set(stack.facts.modified) == {"a.py", "run.sh"}
    assert stack.facts.deleted == ("old.py",)
    assert stack.facts.untracked == ("new file ü.py",)
    assert stack.facts.uncommitted == 4
    assert stack.git.text("rev-parse", f"{stack.base}^") == lab.git(target, "rev-parse", "HEAD")
    assert stack.git.text("log", "-1", "--format=%s", stack.base) == "Uncommitted changes as found"
    held = stack.git.run("ls-tree", "-r", "--name-only", stack.base).stdout.decode().split("\n")[:-1]
    assert held == [".gitignore", "a.py", "b.py", "new file ü.py", "run.sh"]
    assert text_at(stack, stack.base, "a.py") == "changed again\n"
    assert contents(lab.tree(stack)) == contents(target)


def test_a_submodule_stays_as_it_is(lab: Lab) -> None:
    library = lab.repository({"lib.py": "1\n"}, name="library")
    target = lab.repository({"a.py": "1\n"})
    add = f"git -c protocol.file.allow=always submodule --quiet add {library} sub"
    lab.sh(target, f"{add}; git commit -q -m submodule; echo changed > sub/lib.py")
    stack = lab.new_stack(target)
    assert stack.base == stack.facts.head
    tree = lab.tree(stack)
    assert (tree / "sub" / "lib.py").read_text() == "changed\n"
    for path in ("sub/lib.py", "sub/new.py"):
        assert "submodule" in lab.refusal(stack, make_diff(tree, {path: "x\n"})).reason
    # The submodule as a target by itself is a repository like any other.
    assert lab.new_stack(target / "sub", lab.run / "own").facts.no_branch_because == ""


def test_a_plain_folder_and_a_folder_within_a_repository_get_no_branch_and_a_reason(lab: Lab) -> None:
    target = lab.repository({"examples/a.py": "1\n"})
    stack = lab.new_stack(target / "examples")
    assert stack.facts.no_branch_because.startswith("the target is only a folder of the repository")
    stack = lab.new_stack(write_files(lab.tmp_path / "plain", {"a.py": "1\n"}), lab.run / "other")
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
    attributes = {".gitattributes": ATTRIBUTES, "sub/.gitattributes": "* text\n"}
    target = write_files(lab.tmp_path / "target", {**attributes, **AWKWARD})
    (target / "empty.py").chmod(0o755)
    (target / "link").symlink_to("crlf.py")
    if kind != "plain folder":
        lab.git(target, "init", "--quiet")
    if kind == "tracked":
        lab.sh(target, "git -c core.attributesFile=/dev/null add --all || true; git commit -q -m first || true")
    stack = lab.new_stack(target)
    assert contents(lab.tree(stack, "before")) == contents(target)
    edits = {"crlf.py": b"a\r\nB\r\n", "latin.py": "è\n".encode("latin-1"), "größe/日本.py": b"2\n", "new.py": b"x\r\n"}
    lab.accept(stack, "one", edits)
    edited = {path: (False, content) for path, content in edits.items()}
    assert contents(lab.tree(stack, "after")) == {**contents(target), **edited}


def test_ignored_and_large_files_are_in_every_tree_and_in_no_commit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.repository.base.MAX_UNTRACKED_BYTES", 1000)
    target = lab.repository({"a.py": "1\n", ".gitignore": "*.pt\n/data/\n"})
    write_files(target, {"model.pt": "weights", "data/set/x.csv": "1,2\n", "dump.csv": "x" * 2000})
    write_files(target, {".git/info/exclude": "private.txt\n", "private.txt": "mine\n"})
    stack = lab.new_stack(target)
    assert stack.base == stack.facts.head
    assert stack.facts.too_large == ("dump.csv",)
    lab.accept(stack, "one", {"a.py": "2\n"})
    tree = lab.tree(stack)
    for path in ("model.pt", "data/set/x.csv", "dump.csv", "private.txt"):
        assert (tree / path).read_bytes() == (target / path).read_bytes()
        assert lab.refusal(stack, make_diff(tree, {path: "x\n"})).kind == "refused"


def test_what_the_user_ignores_everywhere_stays_out_of_commits(lab: Lab) -> None:
    target = lab.repository({"a.py": "1\n"})
    lab.git(target, "config", "--global", "core.excludesFile", "~/ignored-by-me")
    write_files(lab.tmp_path, {"home/ignored-by-me": ".env\n", "target/.env": "KEY=secret\n"})
    assert lab.git(target, "status", "--porcelain") == ""
    assert lab.new_stack(target).facts.untracked == ()


def test_files_that_git_holds_in_another_form_are_no_noise(lab: Lab) -> None:
    files = {
        ".gitattributes": "*.bat eol=crlf\n*.id ident\n*.up filter=upper\n*.bin filter=lfs\n",
        "w.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n",
    }
    target = lab.repository({**files, "run.bat": "one\ntwo\n", "x.id": "$Id$\n", "x.up": "text\n", "a.py": "1\n"})
    lab.sh(
        target,
        "git config filter.upper.smudge 'tr a-z A-Z'; git config filter.upper.clean 'tr A-Z a-z';"
        # older than the index, as in any repository that was not checked out this very moment
        "rm run.bat x.id x.up; git checkout -q -- .; touch -d 2020-09-13 run.bat x.id x.up; git update-index --refresh;"
        "printf weights > w.bin",
    )
    assert (target / "run.bat").read_bytes() == b"one\r\ntwo\r\n"
    assert (target / "x.up").read_text() == "TEXT\n"
    assert (target / "x.id").read_text() != "$Id$\n"
    stack = lab.new_stack(target)
    assert stack.base == stack.facts.head
    tree = lab.tree(stack)
    assert (tree / "x.up").read_text() == "TEXT\n"
    for path in ("x.id", "x.up", "w.bin"):
        assert "could not be stored" in lab.refusal(stack, make_diff(tree, {path: "x\n"})).reason
    # Line ends are converted at the edge: in the tree as the user has them, in git as git has them.
    edit = lab.change(stack, "bat", {"run.bat": b"one\r\nzwei\r\ndrei\n"})
    assert isinstance(stack.materialise_candidate(edit.diff, lab.run / "candidate", RULES), AppliedPatch)
    lab.put(stack, edit)
    for place in (lab.run / "candidate", lab.tree(stack, "accepted")):
        assert (place / "run.bat").read_bytes() == b"one\r\nzwei\r\ndrei\r\n"
    assert text_at(stack, stack.top, "run.bat") == "one\nzwei\ndrei\n"


def test_an_executable_bit_that_means_nothing_is_no_change_and_none_is_brought(lab: Lab) -> None:
    target = write_files(lab.repository({"a.py": "1\n"}), {"new.py": "1\n"})
    lab.sh(target, "git config core.fileMode false; chmod a+x a.py new.py")
    stack = lab.new_stack(target)
    assert (stack.facts.modified, stack.facts.untracked) == ((), ("new.py",))
    lab.accept(stack, "one", {"a.py": "2\n", "new.py": "2\n"})
    listed = stack.git.run("ls-tree", "-r", stack.top).stdout.decode().splitlines()
    assert [line.split()[0] for line in listed] == ["100644", "100644"]
    assert "mode" not in stack.diff(stack.top)
