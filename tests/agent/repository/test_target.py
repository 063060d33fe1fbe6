"""The target's files are copied as they are, and the target stays as it is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.repository.target import find_entry, import_target, tree_hash
from tests.agent.fixture_types import Contents, Write
from tests.files import open_to_all
from tools.errors import NoSuchEntry, NoSuchTarget, TargetError, TargetTooLarge, TargetUnreadable


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "pristine"


@pytest.fixture
def as_somebody_else(tmp_path: Path) -> Iterator[None]:
    """Root reads everything; these tests need a user that may not."""
    if os.geteuid() != 0:
        yield
        return
    open_to_all(tmp_path)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.setegid(65534)
    os.seteuid(65534)
    yield
    os.seteuid(0)
    os.setegid(0)


def test_all_files_come_over_with_names_contents_and_the_executable_bit(
    tmp_path: Path, run: Path, write: Write, contents: Contents
) -> None:
    files = {"bench.py": "x = 1\r\n", "größe und mehr/a.py": "", "a/b/c/w.bin": os.urandom(5000), "line\nbreak": "x"}
    target = write(tmp_path / "target", files)
    (target / "a" / "run.sh").write_text("echo\n")
    (target / "a" / "run.sh").chmod(0o755)
    (target / "empty").mkdir()
    before = tree_hash(target)
    imported = import_target(target, run)
    assert tree_hash(target) == before
    assert contents(run) == contents(target)
    assert (run / "empty").is_dir()
    assert (
        imported.size_bytes
        == sum(file.size for file in imported.files)
        == sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    )
    assert imported.notes == []
    (target / "bench.py").unlink()
    import_target(target, run)  # which replaces the first
    assert contents(run) == contents(target)


def test_a_tree_hash_sees_every_file_but_version_control_and_what_no_run_copies(tmp_path: Path, write: Write) -> None:
    target = write(tmp_path / "t", {"a.py": "1\n", ".git/HEAD": "x", "venv/pyvenv.cfg": "", "venv/lib/x.py": "1\n"})
    before = tree_hash(target)
    (target / ".git" / "HEAD").write_text("y")
    (target / "venv" / "lib" / "x.py").write_text("2\n")
    write(target, {"__pycache__/a.pyc": "1", ".ratchet/runs/1/run.json": "{}"})
    assert tree_hash(target) == before
    write(target, {"data/new.csv": "1"})
    assert tree_hash(target) != before


def test_environments_caches_and_version_control_stay_behind(tmp_path: Path, run: Path, write: Write) -> None:
    names = ".git/config sub/.git/config venv/pyvenv.cfg venv/bin/python node_modules/x.js pkg/__pycache__/a.pyc"
    files = dict.fromkeys((*names.split(), ".ratchet/runs/1/run.json", "conda/conda-meta/history"), "x")
    files |= {"sub/a.py": "1\n", "worktree/.git": "gitdir: /x\n", "worktree/b.py": ""}
    target = write(tmp_path / "target", files)
    imported = import_target(target, run)
    copied = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    assert copied == ["sub/a.py", "worktree/b.py"]
    assert imported.nested_repositories == ["sub", "worktree"]
    left_behind = {left.path for left in imported.not_imported}
    assert left_behind == {"venv", "node_modules", "pkg/__pycache__", ".ratchet", "conda"}


def test_a_link_inside_leads_to_the_copy_even_when_it_is_written_as_absolute(
    tmp_path: Path, run: Path, write: Write
) -> None:
    target = write(tmp_path / "target", {"data/x.txt": "original\n", "pkg/a.py": ""})
    (target / "pkg" / "relative").symlink_to("../data/x.txt")
    (target / "pkg" / "absolute").symlink_to(target / "data")
    (target / "pkg" / "roundabout").symlink_to("../../target/data/x.txt")
    import_target(target, run)
    (target / "data" / "x.txt").write_text("changed\n")
    assert (run / "pkg" / "relative").readlink() == Path("../data/x.txt")
    for link in ("relative", "absolute/x.txt", "roundabout"):
        assert (run / "pkg" / link).read_text() == "original\n"


def test_a_link_to_the_outside_never_leads_to_the_run_s_own_files(tmp_path: Path, run: Path, write: Write) -> None:
    target = write(tmp_path / "somewhere" / "target", {"deep/er/a.py": "", "top/b.py": ""})
    write(tmp_path / "somewhere", {"ledger.jsonl": "theirs\n"})
    write(run.parent, {"ledger.jsonl": "ours\n"})
    (target / "plain").symlink_to("../ledger.jsonl")
    (target / "deep" / "to_top").symlink_to("../top")
    (target / "by_detour").symlink_to("deep/to_top/../../ledger.jsonl")
    (target / "through_a_link").symlink_to("plain")
    (target / "missing").symlink_to("../not_there")
    imported = import_target(target, run)
    for link in ("plain", "by_detour", "through_a_link"):
        assert (run / link).read_text() == "theirs\n", link
    assert (run / "missing").readlink() == tmp_path / "somewhere" / "not_there"
    assert sum("leads outside" in note for note in imported.notes) == 4


def test_links_in_a_circle_are_no_trap(tmp_path: Path, run: Path, write: Write) -> None:
    target = write(tmp_path / "target", {"a.py": ""})
    (target / "self").symlink_to("self")
    (target / "up").symlink_to(".")
    (target / "one").symlink_to("two")
    (target / "two").symlink_to("one")
    import_target(target, run)
    assert (run / "up" / "up" / "a.py").exists()
    tree_hash(target)


def test_pipes_sockets_and_odd_names_are_named_and_not_opened(tmp_path: Path, run: Path, write: Write) -> None:
    target = write(tmp_path / "t", {"a.py": ""})
    os.mkfifo(target / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(target / "socket"))
    (Path(os.fsdecode(os.fsencode(target) + b"/caf\xe9.py"))).write_text("x")
    imported = import_target(target, run)
    assert {left.path for left in imported.not_imported} == {"pipe", "socket", "caf?.py"}
    assert [path.name for path in run.iterdir()] == ["a.py"]
    tree_hash(target)


@pytest.mark.usefixtures("as_somebody_else")
def test_what_cannot_be_read_is_named(tmp_path: Path, write: Write) -> None:
    target = write(tmp_path / "target", {"a.py": "1\n", "secret.txt": "x", "closed/b.py": "x"})
    (target / "secret.txt").chmod(0)
    (target / "closed").chmod(0)
    imported = import_target(target, tmp_path / "pristine")
    assert {left.path: left.reason for left in imported.not_imported} == {
        "secret.txt": "cannot be read: Permission denied",
        "closed": "cannot be read: Permission denied",
    }
    assert [file.path for file in imported.files] == ["a.py"]
    with pytest.raises(TargetUnreadable):
        find_entry(target, "secret.txt")
    target.chmod(0)
    with pytest.raises(TargetUnreadable):
        import_target(target, tmp_path / "again")


@pytest.mark.usefixtures("as_somebody_else")
def test_a_read_only_target_is_as_good_as_any(tmp_path: Path, write: Write) -> None:
    target = write(tmp_path / "target", {"a.py": "1\n", "b/c.py": "2\n"})
    for path in (target / "a.py", target / "b" / "c.py", target / "b", target):
        path.chmod(0o555 if path.is_dir() else 0o444)
    import_target(target, tmp_path / "pristine")
    import_target(target, tmp_path / "pristine")
    assert (tmp_path / "pristine" / "b" / "c.py").read_text() == "2\n"


def test_too_much_is_said_before_anything_is_copied_with_what_is_large(tmp_path: Path, run: Path, write: Write) -> None:
    target = write(tmp_path / "target", {"bench.py": "x", "data/one.bin": b"x" * (3 << 20), "data/two.bin": b"x"})
    with pytest.raises(TargetTooLarge, match=r"at most 1\.0 MiB.*data \(3\.0 MiB\)") as raised:
        import_target(target, run, max_bytes=1 << 20)
    assert "--mount" in raised.value.hint
    with pytest.raises(TargetTooLarge, match=r"at most 2 files.*data \(2 files\)"):
        import_target(target, run, max_files=2)
    assert not run.exists()
    import_target(target, run, max_bytes=1 << 20, leave_out=[target / "data"])
    assert (run / "data").readlink() == target / "data"
    assert (run / "data" / "two.bin").exists()


@pytest.mark.parametrize("there", ["missing", "file.py", "missing/deeper", "loop", "nul\0"])
def test_what_is_no_folder_is_no_target(there: str, tmp_path: Path, run: Path, write: Write) -> None:
    write(tmp_path, {"file.py": "x"})
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(NoSuchTarget):
        import_target(tmp_path / there, run)


def test_the_run_s_files_may_not_lie_in_the_target_nor_around_it(tmp_path: Path, write: Write) -> None:
    target = write(tmp_path / "outer" / "target", {"a.py": "x"})
    for into in (target / "run", target, tmp_path / "outer"):
        with pytest.raises(TargetError):
            import_target(target, into)
    assert (target / "a.py").exists()


def test_an_entry_may_be_named_from_the_target_from_here_or_from_the_root(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write(tmp_path / "target", {"bench.py": "x", "scripts/run.py": "x"})
    monkeypatch.chdir(tmp_path)
    (target / "linked.py").symlink_to("scripts/run.py")
    for said in ("scripts/run.py", "./scripts/../scripts/run.py", "target/scripts/run.py", "linked.py"):
        assert find_entry(target, said) == "scripts/run.py"
    assert find_entry(target, str(target / "bench.py")) == "bench.py"
    assert find_entry(Path("target"), "bench.py") == "bench.py"


def test_an_entry_is_a_file_of_the_program(tmp_path: Path, write: Write) -> None:
    write(tmp_path, {"outside.py": "x"})
    target = write(tmp_path / "target", {"bench.py": "x", "venv/pyvenv.cfg": "", "venv/run.py": "x", "pkg/a.py": "x"})
    (target / "out.py").symlink_to("../outside.py")
    for said in ("other.py", "pkg", "../outside.py", "out.py", "venv/run.py", str(tmp_path / "outside.py"), "."):
        with pytest.raises(NoSuchEntry):
            find_entry(target, said)
    with pytest.raises(NoSuchEntry, match=r"Scripts at its top: bench\.py"):
        find_entry(target, "bech.py")
