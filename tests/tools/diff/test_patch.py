"""A diff does what it says to a tree of ours, or nothing."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.files import write_files
from tools.diff.patch import AppliedPatch, PatchFinding, apply_patch, digest, make_diff
from tools.diff.patch_rules import PatchRules

RULES = PatchRules()


def contents(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file() and not p.is_symlink()}


def finding(diff: str, tree: Path, rules: PatchRules = RULES) -> PatchFinding:
    before = contents(tree)
    outcome = apply_patch(diff, tree, rules)
    assert isinstance(outcome, PatchFinding), "it was applied"
    assert contents(tree) == before
    return outcome


def new_file(path: str, line: str = "x = 1") -> str:
    return f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n"


CASES: dict[str, tuple[dict[str, str | bytes], dict[str, str | bytes | None]]] = {
    "an edit": ({"a.py": "one\ntwo\nthree\n"}, {"a.py": "one\n2\nthree\n"}),
    "a new file in a new folder": ({"a.py": "one\n"}, {"pkg/new.py": "hello\n"}),
    "a new empty file": ({"a.py": "one\n"}, {"pkg/__init__.py": ""}),
    "a deletion": ({"a.py": "one\n", "sub/b.py": "two\n"}, {"sub/b.py": None}),
    "no newline at the end, after": ({"a.py": "one\ntwo\n"}, {"a.py": "one\ntwo"}),
    "no newline at the end, both": ({"a.py": "one\ntwo"}, {"a.py": "1\ntwo"}),
    "Windows line ends": ({"a.py": "one\r\ntwo\r\n"}, {"a.py": "one\r\nzwei\r\n"}),
    "form feeds and U+2028 in a line": ({"a.py": "a\x0cb\u2028c\nd\n"}, {"a.py": "a\x0cb\u2028c\nD\n"}),
    "a blank in the name": ({"my file.py": "one\n"}, {"my file.py": "1\n", "other file.py": "2\n"}),
    "an umlaut in the name": ({"größe.py": "one\n"}, {"größe.py": "1\n"}),
    "quotes in the name": ({'say "hi".py': "one\n"}, {'say "hi".py': "1\n"}),
    "binary": ({"w.bin": b"\0\1\2"}, {"w.bin": bytes(range(256)) * 5, "new.bin": b"\0\xff"}),
    "binary: text that is not UTF-8": ({"l.py": b"caf\xe9 = 1\nb\n"}, {"l.py": b"caf\xe9 = 2\n"}),
    "lines that look like a diff": ({"a.py": "-- a\n++ b\n"}, {"a.py": "-- a\n+++ c\n--- d\n@@ -1 +1 @@\n"}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_diff_of_ours_is_applied_to_the_byte(case: str, tmp_path: Path) -> None:
    old, changes = CASES[case]
    tree = write_files(tmp_path / "tree", old)
    diff = make_diff(tree, changes)
    diff.encode("utf-8")
    outcome = apply_patch(diff, tree, RULES)
    assert isinstance(outcome, AppliedPatch), outcome
    wanted = {name: content for name, content in {**old, **changes}.items() if content is not None}
    assert contents(tree) == contents(write_files(tmp_path / "wanted", wanted))
    assert set(outcome.files) == set(changes)
    assert all(any(folder.iterdir()) for folder in tree.glob("*/"))  # a folder goes with its last file


def test_a_diff_that_git_wrote_is_applied_with_renames_modes_and_binary_files(tmp_path: Path) -> None:
    files = {"a.py": "1\n2\n3\n4\n5\n6\n", "run.sh": "echo\n", "w.bin": b"\0" * 500}
    tree, wanted = write_files(tmp_path / "tree", files), write_files(tmp_path / "wanted", files)
    (wanted / "a.py").rename(wanted / "b ü.py")
    write_files(wanted, {"b ü.py": "1\n2\n3\n4\nfive\n6\n", "w.bin": os.urandom(700)})
    (wanted / "run.sh").chmod(0o755)
    command = ["git", "diff", "--no-index", "-M", "--binary", "--no-prefix", "tree", "wanted"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    diff = re.sub(
        r'^(rename (?:from|to) "?)[ab]/', r"\1", said.replace("tree/", "a/").replace("wanted/", "b/"), flags=re.M
    )
    assert "rename from a.py" in diff
    assert "old mode 100644" in diff
    outcome = apply_patch(diff, tree, RULES)
    assert isinstance(outcome, AppliedPatch), outcome
    assert contents(tree) == contents(wanted)
    assert os.access(tree / "run.sh", os.X_OK)
    assert outcome.files["a.py"] is None


def test_an_edited_file_keeps_its_executable_bit_and_is_not_written_through_a_hard_link(tmp_path: Path) -> None:
    tree = write_files(tmp_path / "tree", {"run.sh": "echo one\n"})
    (tree / "run.sh").chmod(0o755)
    (tmp_path / "pristine.sh").hardlink_to(tree / "run.sh")
    apply_patch(make_diff(tree, {"run.sh": "echo two\n"}), tree, RULES)
    assert os.access(tree / "run.sh", os.X_OK)
    assert (tmp_path / "pristine.sh").read_text() == "echo one\n"


THREE = "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n"
APPLIED = {
    "words around it, and a blank line that was stripped": (
        {"a.py": "one\n\nthree\n"},
        "Here it is:\n\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@ def f():\n one\n\n-three\n+drei\n\nHope it helps.\n",
        {"a.py": b"one\n\ndrei\n"},
    ),
    "a hunk that has moved and fits at one place only": (
        {"a.py": "new\nnew\none\ntwo\nthree\n"},
        THREE,
        {"a.py": b"new\nnew\none\nzwei\nthree\n"},
    ),
    "no prefixes and no context": (
        {"pkg/a.py": "one\ntwo\nthree\n", "b.py": "x\n"},
        "--- pkg/a.py\n+++ pkg/a.py\n@@ -2 +2 @@\n-two\n+zwei\n--- b.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        {"pkg/a.py": b"one\nzwei\nthree\n"},
    ),
    "a module in a package, named like a standard one": (
        {"model/__init__.py": "", "profile.py": "mine\n"},
        new_file("model/types.py") + "--- a/profile.py\n+++ b/profile.py\n@@ -1 +1 @@\n-mine\n+still mine\n",
        {"model/__init__.py": b"", "model/types.py": b"x = 1\n", "profile.py": b"still mine\n"},
    ),
}


@pytest.mark.parametrize("case", APPLIED)
def test_a_diff_of_others_is_applied_where_it_is_clear(case: str, tmp_path: Path) -> None:
    files, diff, after = APPLIED[case]
    tree = write_files(tmp_path, files)
    assert isinstance(apply_patch(diff, tree, RULES), AppliedPatch)
    assert contents(tree) == after


def test_a_hunk_that_has_moved_and_fits_at_two_places_is_not_applied(tmp_path: Path) -> None:
    tree = write_files(tmp_path, {"a.py": "new\n" + "one\ntwo\nthree\n" * 2})
    assert "2 places" in finding(THREE, tree).reason


REFUSED = {
    "an absolute path": new_file("/etc/x").replace("b//etc", "/etc"),
    "a way out": new_file("../x.py"),
    "a way out in the middle": new_file("a/../../x.py"),
    "a dot folder": new_file("./x.py"),
    "git's own folder": new_file(".git/hooks/pre-commit"),
    "git's own folder in another case": new_file(".GIT/config"),
    "git's own folder, as Windows writes it": new_file("git~1/config"),
    "git's own folder with an invisible letter": new_file(".g\u200cit/config"),
    "a nested repository": new_file("sub/.git/config"),
    "a workflow": new_file(".github/workflows/ci.yml"),
    "attributes": new_file(".gitattributes", "* filter=x"),
    "submodules": new_file("sub/.gitmodules"),
    "a backslash": new_file("a\\\\b.py"),
    "a bell": '--- /dev/null\n+++ "b/a\\007.py"\n@@ -0,0 +1 @@\n+x\n',
    "what Python runs at start": new_file("sitecustomize.py"),
    "a path file": new_file("x.pth", "import os"),
    "compiled Python": new_file("__pycache__/bench.cpython-311.pyc"),
    "a library": new_file("kernels/fast.so"),
    "a module that hides torch": new_file("torch.py"),
    "a package that hides json": new_file("json/__init__.py"),
    "a module that hides time, beside a script": new_file("scripts/time.py"),
    "a new link": "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
    "a submodule": "diff --git a/m b/m\nnew file mode 160000\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+Sub\n",
    "a file turned into a link": "diff --git a/a.py b/a.py\nold mode 100644\nnew mode 120000\n",
    "set user id": "diff --git a/a.py b/a.py\nold mode 100644\nnew mode 104755\n",
    "renaming onto a protected place": "diff --git a/a.py b/.github/a\nrename from a.py\nrename to .github/a\n",
    "through a link": new_file("link/x.py"),
    "the link itself": "--- a/link\n+++ b/link\n@@ -1 +1 @@\n-x\n+y\n",
    "deleting a link": "diff --git a/link b/link\ndeleted file mode 120000\n",
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_change_needs_is_refused(case: str, tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"x.txt": "theirs\n"})
    tree = write_files(tmp_path / "tree", {"a.py": "one\n", "scripts/run.py": "\n"})
    (tree / "link").symlink_to(outside)
    found = finding(REFUSED[case], tree)
    assert found.kind == "refused", found
    assert contents(outside) == {"x.txt": b"theirs\n"}
    assert not (tmp_path / "x.py").exists()


def test_protected_files_are_refused_with_the_reason_of_the_caller(tmp_path: Path) -> None:
    tree = write_files(tmp_path, {"bench.py": "one\n", "model.py": "one\n"})
    rules = PatchRules(protected=lambda path: "it is the entry" if path == "bench.py" else None)
    rename = "diff --git a/bench.py b/old.py\nrename from bench.py\nrename to old.py\n"
    edit, removal = make_diff(tree, {"bench.py": "two\n", "model.py": "two\n"}), make_diff(tree, {"bench.py": None})
    for diff in (edit, removal, rename):
        found = finding(diff, tree, rules)
        assert (found.kind, found.reason) == ("refused", "bench.py: it is the entry")


def test_size_and_number_are_limited(tmp_path: Path) -> None:
    tree = write_files(tmp_path, {"a.py": "one\n"})
    large = make_diff(tree, {"a.py": "x" * 3000 + "\n"})
    assert finding(large, tree, PatchRules(max_file_bytes=1000)).kind == "refused"
    assert finding(large, tree, PatchRules(max_diff_bytes=100)).kind == "refused"
    assert finding(make_diff(tree, {"b": b"\0" * 2000}), tree, PatchRules(max_binary_bytes=1000)).kind == "refused"
    many = make_diff(tree, {f"{n}.py": "x\n" for n in range(11)})
    assert finding(many, tree, PatchRules(max_files=10)).kind == "refused"


BROKEN = {
    "nothing in it": "no diff at all\n",
    "a hunk without a file": "@@ -1 +1 @@\n-one\n+two\n",
    "a file that is not there": "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-one\n+two\n",
    "a new file that is there": new_file("a.py"),
    "another context": "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-uno\n+eins\n two\n",
    "fewer lines than it says": "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n-one\n+eins\n",
    "more lines than it says": "--- a/a.py\n+++ b/a.py\n@@ -1,1 +1,1 @@\n-one\n+eins\n+zwei\n",
    "a deletion that leaves lines": "--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n",
    "no change": "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n two\n",
    "two names without a rename": "--- a/a.py\n+++ b/c.py\n@@ -1 +1 @@\n-one\n+eins\n",
    "half a rename": "diff --git a/a.py b/c.py\nrename from a.py\n",
    "a binary file without content": "diff --git a/b b/b\nBinary files a/b and b/b differ\n",
    "a merge": "diff --cc a.py\n@@@ -1 -1 +1 @@@\n",
    "damaged binary content": "diff --git a/b b/b\nnew file mode 100644\nGIT binary patch\nliteral 3\nKcmZQzzzz\n\n",
    "a file that is named only": "diff --git a/b b/b\nBinary files a/b and b/b differ\n--- a/a.py\n+++ b/a.py\n"
    "@@ -1 +1 @@\n-one\n+eins\n",
    "a file in a file": new_file("a.py/b.py"),
    "a line number beyond the end": "--- a/a.py\n+++ b/a.py\n@@ -99,0 +100 @@\n+x\n",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_diff_that_cannot_be_applied_is_broken_and_says_why(case: str, tmp_path: Path) -> None:
    found = finding(BROKEN[case], write_files(tmp_path, {"a.py": "one\ntwo\n"}))
    assert found.kind == "broken", found
    assert found.reason


@pytest.mark.parametrize("line", ["x\r\n", "x \n", "x", "two\n"])
def test_a_misfit_names_the_line_that_differs_and_shows_how_it_ends(line: str, tmp_path: Path) -> None:
    tree = write_files(tmp_path, {"a.py": "one\n" + line})
    found = finding("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-x\n+y\n", tree)
    assert found.reason == rf"a.py, hunk 1: line 2 should read 'x\n', but reads {line!r}"


def test_binary_content_that_swells_when_unpacked_is_not_unpacked_whole(tmp_path: Path) -> None:
    tree = write_files(tmp_path, {"b.bin": b"\0" * 300_000})
    bomb = make_diff(tree, {"new.bin": b"\0" * 100_000}).replace("literal 100000", "literal 900000000")
    assert finding(bomb, tree).kind == "broken"
    diff = make_diff(tree, {"b.bin": b"\0" * 300_000 + b"\1"})
    assert "\ndelta " in diff
    assert finding(diff, tree).kind == "refused"  # for the size of the file
    swells = finding(diff, tree, PatchRules(max_diff_bytes=100_000, max_file_bytes=1 << 30, max_binary_bytes=1 << 30))
    assert (swells.kind, "over limit" in swells.reason) == ("broken", True)


def test_the_digest_is_of_what_a_diff_says(tmp_path: Path) -> None:
    tree = write_files(tmp_path, {"a.py": "one\ntwo\n"})
    diff = make_diff(tree, {"a.py": "one\nzwei\n"})
    chatty = diff.replace("--- a/a.py", "index 12..34 100644\n--- a/a.py").replace(" @@\n", " @@ class A:\n")
    chatty = f"A mail.\n{chatty}"
    assert digest(chatty) == digest(diff)
    assert len(digest(diff)) == 16
    assert digest(diff.replace("zwei", "deux")) != digest(diff)
    assert digest("not a diff") != digest("another")


def test_a_diff_is_not_made_through_a_link(tmp_path: Path) -> None:
    tree = write_files(tmp_path / "tree", {"a.py": "one\n"})
    (tree / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="symbolic link"):
        make_diff(tree, {"link/x.py": "x\n"})
