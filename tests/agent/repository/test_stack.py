"""The stack keeps what was accepted, in order, and other versions of it can be made."""

from __future__ import annotations

import shutil

import pytest

from agent.repository.stack import Change, Conflict, Stack, StackError
from agent.repository.target import tree_hash
from tests.agent.fixture_types import RULES, TIME, Lab, MakeChange, text_at
from tools.diff.patch import AppliedPatch, PatchFinding

SEVEN = "".join(f"line {number}\n" for number in range(1, 8))

pytestmark = pytest.mark.usefixtures("home")


def accepted(stack: Stack) -> list[str]:
    return [commit.attempt_id for commit in stack.commits()]


def test_accepting_is_one_commit_with_its_attempt_and_twice_is_once(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN})
    first = lab.change(stack, "fuse-1", {"a.py": SEVEN.replace("line 2", "LINE 2"), "pkg/new.py": "x\n"})
    commit = stack.accept(first)
    (lab.run / "again").mkdir()
    assert lab.new_stack(lab.tmp_path / "target", lab.run / "again").accept(first) == commit  # in another run, too
    assert stack.top == commit
    assert accepted(stack) == ["fuse-1"]
    assert stack.accept(first) == commit
    second = stack.accept(lab.change(stack, "fuse-2", {"pkg/new.py": None}))
    assert stack.accept(first) == commit
    assert [found.commit for found in stack.commits()] == [commit, second]
    said = stack.git.text("log", "-1", "--format=%an <%ae>|%at|%B", commit)
    assert said == f"Ratchet <ratchet@localhost>|{TIME}|Change fuse-1\n\nWhy: it is faster.\n\nRatchet-Attempt: fuse-1"


def test_the_diff_of_a_commit_is_what_was_accepted(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "b.py": "x\n", "run.sh": "x\n"})
    one = lab.change(stack, "one", {"a.py": "new\n" + SEVEN, "b.py": None, "c.bin": b"\0\1"})
    commit = stack.accept(one)
    assert stack.diff(commit) == one.diff
    mode = "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
    stack.accept(Change("two", mode, "Executable", TIME))
    assert stack.diff(stack.top) == mode
    assert stack.diff(stack.top, since=stack.base) == one.diff + mode


def test_an_attempt_cannot_be_forged_by_a_message(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN})
    message = "Title\n\nRatchet-Attempt: other\0\nRatchet-Attempt: another"
    stack.accept(Change("real", lab.change(stack, "x", {"a.py": "1\n"}).diff, message, TIME))
    assert accepted(stack) == ["real"]
    with pytest.raises(ValueError, match="not an attempt id"):
        stack.build([Change("a\nRatchet-Attempt: b", "", "m", TIME)])


def test_a_candidate_that_does_not_fit_leaves_nothing_behind(lab: Lab) -> None:
    stack = lab.stack({"a.py": "1\n", "bench.py": "1\n"})
    misfit = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-2\n+3\n"
    found = stack.materialise_candidate(misfit, lab.run / "tree", RULES)
    assert isinstance(found, PatchFinding)
    assert not (lab.run / "tree").exists()
    with pytest.raises(StackError, match="does not fit"):
        stack.accept(Change("one", misfit, "m", TIME))
    assert accepted(stack) == []


def test_the_tree_of_a_candidate_is_the_tree_of_its_commit(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "run.sh": "x\n", "gone.py": "x\n"})
    stack.accept(lab.change(stack, "one", {"a.py": SEVEN + "more\n", "gone.py": None}))
    two = lab.change(stack, "two", {"a.py": SEVEN, "new/b.py": "x\n", "gone.py": "back\n"})
    assert isinstance(stack.materialise_candidate(two.diff, lab.run / "candidate", RULES), AppliedPatch)
    stack.accept(two)
    stack.materialise(stack.top, lab.run / "accepted")
    assert lab.contents(lab.run / "candidate") == lab.contents(lab.run / "accepted")
    assert not (lab.run / "accepted" / ".git").exists()
    before = tree_hash(lab.run / "pristine")
    with (lab.run / "accepted" / "run.sh").open("a") as file:  # a copy, and no hard link
        file.write("more\n")
    assert tree_hash(lab.run / "pristine") == before


def test_a_change_that_goes_through_a_link_is_refused(lab: Lab) -> None:
    lab.write(lab.tmp_path / "outside", {"x.py": "theirs\n"})
    target = lab.repository({"a.py": "1\n"})
    (target / "tracked").symlink_to(lab.tmp_path / "outside")
    stack = lab.new_stack(target, lab.run)
    diff = "--- a/tracked/x.py\n+++ b/tracked/x.py\n@@ -1 +1 @@\n-theirs\n+ours\n"
    found = stack.materialise_candidate(diff, lab.run / "tree", RULES)
    assert isinstance(found, PatchFinding)
    assert found.kind == "refused"
    assert (lab.tmp_path / "outside" / "x.py").read_text() == "theirs\n"


def test_a_stack_is_read_from_where_its_run_lies_now(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "b.py": "x\n"})
    top = stack.accept(lab.change(stack, "one", {"a.py": "1\n"}))
    moved = lab.run.rename(lab.run.with_name("moved"))
    again = Stack.open(moved / "stack")
    assert (again.base, again.top, accepted(again)) == (stack.base, top, ["one"])
    again.materialise(again.top, moved / "tree")
    assert [(moved / "tree" / name).read_text() for name in ("a.py", "b.py")] == ["1\n", "x\n"]
    again.accept(lab.change(again, "two", {"b.py": "y\n"}))
    assert accepted(again) == ["one", "two"]
    shutil.rmtree(moved / "pristine")
    with pytest.raises(StackError, match="pristine"):
        Stack.open(moved / "stack")
    with pytest.raises(StackError, match="cannot be read"):
        Stack.open(moved / "nothing")


def test_a_stack_whose_making_was_cut_short_is_made_again(lab: Lab) -> None:
    target = lab.repository({"a.py": SEVEN})
    left = lab.run / ".stack.making" / "repository.git"
    left.mkdir(parents=True)
    (left / "HEAD").write_text("half")
    assert accepted(lab.new_stack(target, lab.run)) == []


THREE_EDITS = (("line 1\n", "ONE\n"), ("line 4\n", "FOUR\n"), ("line 7\n", "7\n8\n"))


def three_changes(stack: Stack, change: MakeChange) -> list[Change]:
    """Three edits of one file, the third beside the second, each a diff against what lies below it."""
    changes = []
    content = SEVEN
    for name, (old, new) in zip(("one", "two", "three"), THREE_EDITS, strict=True):
        content = content.replace(old, new)
        made_on = stack.top
        changes.append(change(stack, name, {"a.py": content}, on=made_on))
        stack.accept(changes[-1])
    return changes


def test_each_change_can_be_left_out(lab: Lab, change: MakeChange) -> None:
    stack = lab.stack({"a.py": SEVEN})
    changes = three_changes(stack, change)
    top = stack.top
    for left_out in range(3):
        rest = [change for number, change in enumerate(changes) if number != left_out]
        built = stack.build(rest)
        assert isinstance(built, str)
        assert [commit.attempt_id for commit in stack.commits(built)] == [change.attempt_id for change in rest]
        expected = SEVEN
        for number, (old, new) in enumerate(THREE_EDITS):
            expected = expected if number == left_out else expected.replace(old, new)
        assert text_at(stack, built, "a.py") == expected
    assert stack.top == top
    assert stack.build(changes) == top


def test_a_change_in_one_of_many_equal_places_stays_where_it_was_made(lab: Lab) -> None:
    block = "def f():\n    x = 1\n    return x\n\n\n"
    stack = lab.stack({"a.py": block * 6})
    removal = lab.change(stack, "removal", {"a.py": block * 5}, on=stack.top)
    stack.accept(removal)
    parts = [block] * 5
    parts[3] = block.replace("1", "2")
    edit = lab.change(stack, "edit", {"a.py": "".join(parts)}, on=stack.top)
    stack.accept(edit)
    built = stack.build([edit])
    assert isinstance(built, str)
    assert text_at(stack, built, "a.py").count("x = 2") == 1
    assert text_at(stack, built, "a.py").count("x = 1") == 5


def test_a_change_that_needs_another_is_a_conflict_and_the_stack_stays(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN})
    first = lab.change(stack, "first", {"a.py": SEVEN.replace("line 4", "four"), "new.py": "x\n"}, on=stack.top)
    stack.accept(first)
    second = lab.change(stack, "second", {"a.py": SEVEN.replace("line 4", "FOUR")}, on=stack.top)
    stack.accept(second)
    third = lab.change(stack, "third", {"new.py": "y\n"}, on=stack.top)
    stack.accept(third)
    top = stack.top
    for rest, blamed, path in (([second], "second", "a.py"), ([third], "third", "new.py")):
        built = stack.build(rest)
        assert isinstance(built, Conflict)
        assert built.attempt_id == blamed
        assert path in built.reason
    assert stack.top == top


def test_an_enabler_in_reserve_is_put_below_a_change_made_without_it(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "b.py": "1\n"})
    enabler = lab.change(stack, "enabler", {"a.py": SEVEN.replace("line 1", "ONE")}, on=stack.top)
    wanted = lab.change(stack, "wanted", {"a.py": SEVEN.replace("line 7", "SEVEN")}, on=stack.top)
    stack.accept(lab.change(stack, "between", {"b.py": "2\n"}))
    built = stack.build([enabler, wanted], on=stack.top)
    assert isinstance(built, str)
    assert accepted(stack) == ["between"]
    stack.adopt(built)
    assert accepted(stack) == ["between", "enabler", "wanted"]
    assert text_at(stack, stack.top, "a.py") == SEVEN.replace("line 1", "ONE").replace("line 7", "SEVEN")


def test_what_another_change_has_done_already_is_no_conflict(lab: Lab) -> None:
    stack = lab.stack({"a.py": SEVEN, "old.py": "x\n"})
    one = lab.change(stack, "one", {"a.py": "1\n", "new.py": "x\n", "old.py": None}, on=stack.top)
    two = lab.change(stack, "two", {"a.py": "1\n", "new.py": "x\n", "old.py": None, "b.py": "x\n"}, on=stack.top)
    built = stack.build([one, two])
    assert isinstance(built, str)
    assert text_at(stack, built, "b.py") == "x\n"
