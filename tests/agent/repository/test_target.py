"""The target's files are copied as they are, and the target stays as it is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agent.repository.target import find_entry, import_target, tree_hash
from tests.agent.lab import contents
from tests.files import as_nobody, write_files
from tools.errors import NoSuchEntry, NoSuchTarget, TargetError, TargetTooLarge, TargetUnreadable


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "pristine"


def test_all_files_come_over_with_names_contents_and_the_executable_bit(tmp_path: Path, run: Path) -> None:
    files = {"bench.py": "x = 1\r\n", "größe und mehr/a.py": "", "a/b/c/w.bin": os.urandom(5000), "line\nbreak": "x"}
    target = write_files(tmp_path / "target", {**files, "a/run.sh": "echo\n"})
    (target / "a" / "run.sh").chmod(0o755)
    (target / "empty").mkdir()
    before = tree_hash(target)
    imported = import_target(target, run)
    assert tree_hash(target) == before
    assert contents(run) == contents(target)
    assert (run / "empty").is_dir()
    assert imported.size_bytes == sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert imported.notes == []
    (target / "bench.py").unlink()
    import_target(target, run)  # which replaces the first
    assert contents(run) == contents(target)


def test_a_tree_hash_sees_every_file_but_version_control_and_what_no_run_copies(tmp_path: Path) -> None:
    files = {"a.py": "1\n", ".git/HEAD": "x", "venv/pyvenv.cfg": "", "venv/lib/x.py": "1\n"}
    target = write_files(tmp_path / "t", files)
    before = tree_hash(target)
    not_seen = {".git/HEAD": "y", "venv/lib/x.py": "2\n", "__pycache__/a.pyc": "1", ".ratchet/runs/1/run.json": "{}"}
    write_files(target, not_seen)
    assert tree_hash(target) == before
    write_files(target, {"data/new.csv": "1"})
    assert tree_hash(target) != before


def test_environments_caches_and_version_control_stay_behind(tmp_path: Path, run: Path) -> None:
    names = ".git/config sub/.git/config venv/pyvenv.cfg venv/bin/python node_modules/x.js pkg/__pycache__/a.pyc"
    files = dict.fromkeys((*names.split(), ".ratchet/runs/1/run.json", "conda/conda-meta/history"), "x")
    files |= {"sub/a.py": "1\n", "worktree/.git": "gitdir: /x\n", "worktree/b.py": ""}
    imported = import_target(write_files(tmp_path / "target", files), run)
    copied = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    assert copied == ["sub/a.py", "worktree/b.py"]
    assert imported.nested_repositories == ["sub", "worktree"]
    assert imported.not_imported.keys() == {"venv", "node_modules", "pkg/__pycache__", ".ratchet", "conda"}


def test_a_link_leads_to_the_copy_or_outside_and_never_to_the_run_s_own_files(tmp_path: Path, run: Path) -> None:
    outer = write_files(tmp_path / "somewhere", {"ledger.jsonl": "theirs\n", "target/data/x.txt": "original\n"})
    target = write_files(outer / "target", {"pkg/a.py": "", "deep/er/a.py": "", "top/b.py": ""})
    write_files(run.parent, {"ledger.jsonl": "ours\n"})
    (target / "pkg" / "relative").symlink_to("../data/x.txt")
    (target / "pkg" / "absolute").symlink_to(target / "data")
    (target / "pkg" / "roundabout").symlink_to("../../target/data/x.txt")
    (target / "plain").symlink_to("../ledger.jsonl")
    (target / "deep" / "to_top").symlink_to("../top")
    (target / "by_detour").symlink_to("deep/to_top/../../ledger.jsonl")
    (target / "through_a_link").symlink_to("plain")
    (target / "missing").symlink_to("../not_there")
    (target / "self").symlink_to("self")
    (target / "up").symlink_to(".")
    imported = import_target(target, run)
    (target / "data" / "x.txt").write_text("changed\n")
    assert (run / "pkg" / "relative").readlink() == Path("../data/x.txt")
    for link in ("relative", "absolute/x.txt", "roundabout"):
        assert (run / "pkg" / link).read_text() == "original\n"
    for link in ("plain", "by_detour", "through_a_link"):
        assert (run / link).read_text() == "theirs\n", link
    assert (run / "missing").readlink() == outer / "not_there"
    assert sum("leads outside" in note for note in imported.notes) == 4
    assert (run / "up" / "up" / "pkg" / "a.py").exists()
    tree_hash(target)


def test_pipes_sockets_and_odd_names_are_named_and_not_opened(tmp_path: Path, run: Path) -> None:
    target = write_files(tmp_path / "t", {"a.py": "", os.fsdecode(b"caf\xe9.py"): "x"})
    os.mkfifo(target / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(target / "socket"))
    imported = import_target(target, run)
    assert imported.not_imported.keys() == {"pipe", "socket", "caf?.py"}
    assert [path.name for path in run.iterdir()] == ["a.py"]
    tree_hash(target)


def test_what_cannot_be_read_is_named_and_what_cannot_be_written_is_as_good_as_any(tmp_path: Path) -> None:
    files = {"a.py": "1\n", "read_only/b.py": "2\n", "secret.txt": "x", "closed/b.py": "x"}
    target = write_files(tmp_path / "target", files)
    for name, mode in {
        "a.py": 0o444,
        "read_only/b.py": 0o444,
        "read_only": 0o555,
        "secret.txt": 0,
        "closed": 0,
    }.items():
        (target / name).chmod(mode)
    with as_nobody(tmp_path):
        for _ in range(2):
            imported = import_target(target, tmp_path / "pristine")
        assert imported.not_imported == dict.fromkeys(("secret.txt", "closed"), "cannot be read: Permission denied")
        assert contents(tmp_path / "pristine").keys() == {"a.py", "read_only/b.py"}
        with pytest.raises(TargetUnreadable):
            find_entry(target, "secret.txt")
        target.chmod(0)
        with pytest.raises(TargetUnreadable):
            import_target(target, tmp_path / "again")


def test_too_much_is_said_before_anything_is_copied_with_what_is_large(tmp_path: Path, run: Path) -> None:
    files = {"bench.py": "x", "data/one.bin": b"x" * (3 << 20), "data/two.bin": b"x"}
    target = write_files(tmp_path / "target", files)
    with pytest.raises(TargetTooLarge, match=r"at most 1\.0 MiB.*data \(3\.0 MiB\)") as raised:
        import_target(target, run, max_bytes=1 << 20)
    assert "--mount" in raised.value.hint
    with pytest.raises(TargetTooLarge, match=r"at most 2 files.*data \(2 files\)"):
        import_target(target, run, max_files=2)
    assert not run.exists()
    import_target(target, run, max_bytes=1 << 20, leave_out=[target / "data"])
    assert (run / "data").readlink() == target / "data"


@pytest.mark.parametrize("there", ["missing", "file.py", "missing/deeper", "loop", "nul\0"])
def test_what_is_no_folder_is_no_target(there: str, tmp_path: Path, run: Path) -> None:
    write_files(tmp_path, {"file.py": "x"})
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(NoSuchTarget):
        import_target(tmp_path / there, run)


def test_the_run_s_files_may_not_lie_in_the_target_nor_around_it(tmp_path: Path) -> None:
    target = write_files(tmp_path / "outer" / "target", {"a.py": "x"})
    for into in (target / "run", target, tmp_path / "outer"):
        with pytest.raises(TargetError):
            import_target(target, into)
    assert (target / "a.py").exists()


def test_an_entry_is_a_file_of_the_program_named_from_the_target_from_here_or_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"bench.py": "x", "scripts/run.py": "x", "venv/pyvenv.cfg": "", "venv/run.py": "x"}
    target = write_files(tmp_path / "target", files)
    write_files(tmp_path, {"outside.py": "x"})
    monkeypatch.chdir(tmp_path)
    (target / "linked.py").symlink_to("scripts/run.py")
    (target / "out.py").symlink_to("../outside.py")
    for said in ("scripts/run.py", "./scripts/../scripts/run.py", "target/scripts/run.py", "linked.py"):
        assert find_entry(target, said) == "scripts/run.py"
    assert find_entry(target, str(target / "bench.py")) == "bench.py"
    assert find_entry(Path("target"), "bench.py") == "bench.py"
    for said in ("other.py", "scripts", "../outside.py", "out.py", "venv/run.py", str(tmp_path / "outside.py"), "."):
        with pytest.raises(NoSuchEntry):
            find_entry(target, said)
    with pytest.raises(NoSuchEntry, match=r"Scripts at its top: bench\.py"):
        find_entry(target, "bech.py")
