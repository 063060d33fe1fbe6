"""The stack keeps what was accepted, in order, and other versions of it can be made."""

from __future__ import annotations

import shutil

import pytest

from agent.repository.objects import list_tree
from agent.repository.stack import Change, Conflict, Stack, StackError
from agent.repository.target import tree_hash
from tests.agent.lab import RULES, TIME, Lab, contents, text_at
from tests.files import write_files
from tools.diff.patch import AppliedPatch

SEVEN = "".join(f"line {number}\n" for number in range(1, 8))


def names(stack: Stack, top: str | None = None) -> list[str]:
    return [commit.attempt_id for commit in stack.commits(top)]


def test_a_change_is_one_commit_with_its_attempt_and_the_same_in_any_run(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN})
    first = lab.accept(stack, "fuse-1", {"a.py": SEVEN.replace("line 2", "LINE 2"), "pkg/new.py": "x\n"})
    commit = stack.top
    assert lab.put(lab.new_stack(lab.tmp_path / "target", lab.run / "again"), first) == commit
    lab.accept(stack, "fuse-2", {"pkg/new.py": None})
    assert names(stack) == ["fuse-1", "fuse-2"]
    assert [found.commit for found in stack.commits()] == [commit, stack.top]
    said = stack.git.text("log", "-1", "--format=%an <%ae>|%at|%B", commit)
    assert said == f"Ratchet <ratchet@localhost>|{TIME}|Change fuse-1\n\nWhy: it is faster.\n\nRatchet-Attempt: fuse-1"


def test_the_diff_of_a_commit_is_what_was_accepted(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "b.py": "x\n", "run.sh": "x\n"})
    one = lab.accept(stack, "one", {"a.py": "new\n" + SEVEN, "b.py": None, "c.bin": b"\0\1"})
    assert stack.diff(stack.top) == one.diff
    mode = "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
    lab.put(stack, Change("two", mode, "Executable", TIME))
    assert stack.diff(stack.top) == mode
    assert stack.diff(stack.top, since=stack.base) == one.diff + mode


def test_an_attempt_cannot_be_forged_by_a_message(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN})
    message = "Title\n\nRatchet-Attempt: other\0\nRatchet-Attempt: another"
    lab.put(stack, Change("real", lab.change(stack, "x", {"a.py": "1\n"}).diff, message, TIME))
    assert names(stack) == ["real"]
    with pytest.raises(ValueError, match="not an attempt id"):
        stack.build([Change("a\nRatchet-Attempt: b", "", "m", TIME)])


def test_a_candidate_that_does_not_fit_or_goes_through_a_link_leaves_nothing_behind(lab: Lab) -> None:
    outside = write_files(lab.tmp_path / "outside", {"x.py": "theirs\n"})
    target = lab.repository({"a.py": "1\n"})
    (target / "tracked").symlink_to(outside)
    stack = lab.new_stack(target)
    misfit = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-2\n+3\n"
    assert lab.refusal(stack, misfit).kind == "broken"
    assert isinstance(stack.build([Change("one", misfit, "m", TIME)]), Conflict)
    through = "--- a/tracked/x.py\n+++ b/tracked/x.py\n@@ -1 +1 @@\n-theirs\n+ours\n"
    assert lab.refusal(stack, through).kind == "refused"
    assert (outside / "x.py").read_text() == "theirs\n"
    assert names(stack) == []


def test_the_tree_of_a_candidate_is_the_tree_of_its_commit(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "run.sh": "x\n", "gone.py": "x\n"})
    lab.accept(stack, "one", {"a.py": SEVEN + "more\n", "gone.py": None})
    two = lab.change(stack, "two", {"a.py": SEVEN, "new/b.py": "x\n", "gone.py": "back\n"})
    assert isinstance(stack.materialise_candidate(two.diff, lab.run / "candidate", RULES), AppliedPatch)
    lab.put(stack, two)
    tree = lab.tree(stack)
    assert contents(lab.run / "candidate") == contents(tree)
    assert not (tree / ".git").exists()
    before = tree_hash(lab.run / "pristine")
    with (tree / "run.sh").open("a") as file:  # a copy, and no hard link
        file.write("more\n")
    assert tree_hash(lab.run / "pristine") == before


def test_a_stack_is_read_from_where_its_run_lies_now(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "b.py": "x\n"})
    lab.accept(stack, "one", {"a.py": "1\n"})
    top = stack.top
    moved = lab.run.rename(lab.run.with_name("moved"))
    again = Stack.open(moved / "stack")
    assert (again.base, again.top, names(again)) == (stack.base, top, ["one"])
    again.materialise(again.top, moved / "tree")
    assert [(moved / "tree" / name).read_text() for name in ("a.py", "b.py")] == ["1\n", "x\n"]
    lab.accept(again, "two", {"b.py": "y\n"})
    assert names(again) == ["one", "two"]
    shutil.rmtree(moved / "pristine")
    with pytest.raises(StackError, match="pristine"):
        Stack.open(moved / "stack")
    with pytest.raises(StackError, match="cannot be read"):
        Stack.open(moved / "nothing")


def test_a_stack_whose_making_was_cut_short_is_made_again(lab: Lab) -> None:
    write_files(lab.run / ".stack.making" / "repository.git", {"HEAD": "half"})
    assert names(lab.stack({"a.py": SEVEN})) == []


def test_each_change_can_be_left_out(lab: Lab) -> None:
    """Three edits of one file, the third beside the second, each a diff against what lies below it."""
    stack, content = lab.stack({"a.py": SEVEN}), SEVEN
    edits = {"one": ("line 1\n", "ONE\n"), "two": ("line 4\n", "FOUR\n"), "three": ("line 7\n", "7\n8\n")}
    changes = {}
    for name, edit in edits.items():
        content = content.replace(*edit)
        changes[name] = lab.accept(stack, name, {"a.py": content})
    top = stack.top
    for left_out in edits:
        built = stack.build([change for name, change in changes.items() if name != left_out])
        assert isinstance(built, str)
        assert names(stack, built) == [name for name in edits if name != left_out]
        expected = SEVEN
        for name, edit in edits.items():
            expected = expected if name == left_out else expected.replace(*edit)
        assert text_at(stack, built, "a.py") == expected
    assert stack.top == top
    assert stack.build(list(changes.values())) == top


def test_a_change_in_one_of_many_equal_places_stays_where_it_was_made(lab: Lab) -> None:
    block = "def f():\n    x = 1\n    return x\n\n\n"
    stack = lab.stack({"a.py": block * 6})
    lab.accept(stack, "removal", {"a.py": block * 5})
    edit = lab.accept(stack, "edit", {"a.py": block * 3 + block.replace("1", "2") + block})
    built = stack.build([edit])
    assert isinstance(built, str)
    assert text_at(stack, built, "a.py").count("x = 2") == 1
    assert text_at(stack, built, "a.py").count("x = 1") == 5


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_beside_those_of_a_change_that_is_left_out_stay(lab: Lab, end: str) -> None:
    """An import below an import, and a decorator below a function."""
    bare = "import a\n\n\ndef h():\n    a()\n\n\nclass M:\n    x = 1\n"
    first = bare.replace("import a\n", "import a\nimport f\n").replace("class M", "def g():\n    f()\n\n\nclass M")
    second = first.replace("import f\n", "import f\nimport s\n").replace("class M", "@s.s\nclass M")
    stack = lab.stack({"m.py": bare.replace("\n", end)})
    lab.accept(stack, "first", {"m.py": first.replace("\n", end)})
    built = stack.build([lab.accept(stack, "second", {"m.py": second.replace("\n", end)})])
    assert isinstance(built, str)
    wanted = bare.replace("import a\n", "import a\nimport s\n").replace("class M", "@s.s\nclass M")
    assert text_at(stack, built, "m.py") == wanted.replace("\n", end)


def test_a_change_brings_along_the_runtime_files_of_one_that_is_left_out(lab: Lab) -> None:
    stack = lab.stack({"pkg/a.py": SEVEN})
    ours = {"__init__": "", "first": "from .kept import x\n", "kept": "from .deep import x\n", "deep": "x = 1\n"}
    runtime = {f"pkg/ratchet_ops/{name}.py": text for name, text in ours.items()}
    first = lab.accept(stack, "first", {"pkg/a.py": SEVEN.replace("line 1", "one"), **runtime})
    new = {"pkg/ratchet_ops/second.py": "from .kept import x\n"}
    text = SEVEN.replace("line 1", "one").replace("line 7", "from .ratchet_ops.second import x")
    second = lab.accept(stack, "second", {"pkg/a.py": text, **new})
    top, built = stack.top, stack.build([second])
    assert isinstance(built, str)
    left = {path for path in list_tree(stack.git, built) if "ratchet_ops" in path}
    assert left == {*runtime, *new} - {"pkg/ratchet_ops/first.py"}
    assert stack.build([second]) == built and stack.build([first, second]) == top


def test_a_change_that_needs_another_is_a_conflict_and_the_stack_stays(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN})
    lab.accept(stack, "first", {"a.py": SEVEN.replace("line 4", "four"), "new.py": "x\n"})
    second = lab.accept(stack, "second", {"a.py": SEVEN.replace("line 4", "FOUR")})
    third = lab.accept(stack, "third", {"new.py": "y\n"})
    top = stack.top
    for change, path in ((second, "a.py"), (third, "new.py")):
        built = stack.build([change])
        assert isinstance(built, Conflict)
        assert built.attempt_id == change.attempt_id
        assert path in built.reason
    assert stack.top == top


def test_a_change_is_carried_over_to_where_others_have_changed_other_lines_or_the_same_in_the_same_way(
    lab: Lab,
) -> None:
    stack = lab.stack({"a.py": SEVEN, "b.py": "1\n", "old.py": "x\n"})
    enabler = lab.change(stack, "enabler", {"a.py": SEVEN.replace("line 1", "ONE"), "n.py": "x\n", "old.py": None})
    wanted = lab.change(stack, "wanted", {"a.py": SEVEN.replace("line 7", "SEVEN"), "n.py": "x\n", "old.py": None})
    lab.accept(stack, "between", {"b.py": "2\n"})
    built = stack.build([enabler, wanted], on=stack.top)
    assert isinstance(built, str)
    assert names(stack) == ["between"]
    stack.adopt(built)
    assert names(stack) == ["between", "enabler", "wanted"]
    assert text_at(stack, stack.top, "a.py") == SEVEN.replace("line 1", "ONE").replace("line 7", "SEVEN")
