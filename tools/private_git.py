"""Run git on a repository of ours, with our configuration alone.

git never runs with a repository of the user's as GIT_DIR, because the configuration of that one can name programs. Its
objects and refs are only data: they are read as alternates, or linked into a repository of ours. No hook, filter,
fsmonitor, pager, editor, credential helper or signing program is known to git here, and no protocol is allowed.
"""

from __future__ import annotations

import functools
import io
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import DiskFull, RatchetError
from tools.errors import ToolError

OLDEST_GIT = (2, 30)
TIME_LIMIT_S = 300.0  # a pipe in the place of a file would keep git waiting for ever
MAX_OUTPUT_BYTES = 1 << 30
_NO_SPACE = ("No space left on device", "Disk quota exceeded")
_BORROWED = "borrowed"  # file with the object folders of others, for reading
NAME, EMAIL = "Ratchet", "ratchet@localhost"

# With -c, so that they win over the configuration of the repository itself.
_SETTINGS = """
core.hooksPath=/dev/null core.fsmonitor=false core.untrackedCache=false
core.attributesFile=/dev/null core.excludesFile=/dev/null core.autocrlf=false core.eol=lf core.safecrlf=false
core.symlinks=true core.fileMode=true core.quotePath=false core.precomposeUnicode=false
core.protectNTFS=false core.protectHFS=false core.commitGraph=false core.multiPackIndex=false
core.fsync=loose-object,reference core.fsyncObjectFiles=true core.logAllRefUpdates=false
core.pager=cat core.sshCommand=false core.askPass=false credential.helper= protocol.allow=never
commit.gpgSign=false gc.auto=0 maintenance.auto=false diff.external= diff.algorithm=histogram submodule.recurse=false
fastimport.unpackLimit=1
"""
# Attributes that lie in the tree are data of the user's; these win over them, so that git never changes a byte.
_ATTRIBUTES = "* -text -eol -crlf -ident -filter -working-tree-encoding -export-subst -export-ignore !diff !merge\n"
_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "false",
}


class GitError(ToolError):
    """git is missing, too old, or could not do what was asked of the private repository."""

    exit_status = 25


@dataclass(frozen=True)
class GitResult:
    status: int
    stdout: bytes
    stderr: str


@functools.cache
def git_program() -> str:
    """Where git is. Raises: GitError when it is missing or older than OLDEST_GIT."""
    oldest = ".".join(map(str, OLDEST_GIT))
    hint = f"Install git {oldest} or newer; your repository need not be one, but the stack of changes is kept in one."
    program = shutil.which("git")
    if program is None:
        raise GitError("git was not found on this machine.", hint=hint)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, env={"LC_ALL": "C"}).stdout
    match = re.search(r"(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < OLDEST_GIT:
        raise GitError(f"git is too old: {program} says {said.strip()!r}.", hint=hint)
    return program


@dataclass(frozen=True)
class PrivateGit:
    """One repository of ours. It is bare: files get in and out by name, never by a checkout."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, *, object_format: str = "sha1", objects: Sequence[Path] = ()) -> PrivateGit:
        """Make an empty repository that can also read the objects in `objects`. Raises: GitError, OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        git = cls(folder)
        options = ("--quiet", "--bare", "--template=", "--initial-branch=stack", f"--object-format={object_format}")
        git.run("init", *options, str(folder))
        (folder / "info").mkdir(exist_ok=True)
        (folder / "info" / "attributes").write_text(_ATTRIBUTES)
        (folder / _BORROWED).write_bytes(b":".join(quoted(os.fspath(path)) for path in objects))
        return git

    def remove_locks(self) -> None:
        """Take away what a killed git left; without this, nothing could be written any more. Raises: OSError.

        Only for the process that holds the run, before it does anything else.
        """
        for lock in (*self.folder.glob("*.lock"), *self.folder.glob("refs/**/*.lock")):
            lock.unlink(missing_ok=True)

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        accept: Iterable[int] = (0,),
        index: Path | None = None,
        worktree: Path | None = None,
        alone: bool = False,
        time_unix: int = 0,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        max_allocation_bytes: int = 0,
    ) -> GitResult:
        """Run one git command.

        `index` is the index file to use, `worktree` the folder that `ls-files` and the like look at, `time_unix` the
        date of a commit. `alone` is for commands that write objects: git sets the time of an object that it finds
        elsewhere instead of writing it again, and elsewhere is the target's. git ends itself when one allocation is
        larger than `max_allocation_bytes` (0: no limit).
        Raises: GitError for a status that is not in `accept`, for a command that takes too long or says too much;
        DiskFull.
        """
        settings = [part for setting in _SETTINGS.split() for part in ("-c", setting)]
        environment = {**_ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath), "GIT_DIR": str(self.folder)}
        environment["GIT_ALLOC_LIMIT"] = str(max_allocation_bytes)
        for role in ("AUTHOR", "COMMITTER"):
            facts = {"NAME": NAME, "EMAIL": EMAIL, "DATE": f"@{time_unix} +0000"}
            environment |= {f"GIT_{role}_{name}": value for name, value in facts.items()}
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        if worktree is not None:
            environment["GIT_WORK_TREE"] = str(worktree)
        if not alone and (borrowed := (self.folder / _BORROWED)).exists():
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.fsdecode(borrowed.read_bytes())
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as complaint:
            given.write(stdin)
            given.seek(0)
            # Files for stdin and stderr: with one pipe only, reading it to its end cannot deadlock.
            command = [git_program(), *settings, *arguments]
            with subprocess.Popen(
                command, env=environment, cwd=self.folder, stdin=given, stdout=subprocess.PIPE, stderr=complaint
            ) as process:
                timer = threading.Timer(TIME_LIMIT_S, process.kill)
                timer.daemon = True
                timer.start()
                try:
                    assert process.stdout is not None
                    stdout = process.stdout.read(max_output_bytes + 1)
                    if len(stdout) > max_output_bytes:
                        process.kill()
                    status = process.wait()
                finally:
                    timer.cancel()
                    process.kill()
            complaint.seek(0)
            stderr = complaint.read(1 << 20).decode("utf-8", "surrogateescape")
        if status not in accept or (status and _is_disk_full(stderr)):
            raise _failure(arguments[0], status, stderr.strip())
        return GitResult(status, stdout, stderr)

    def text(
        self, *arguments: str, stdin: bytes = b"", index: Path | None = None, alone: bool = False, time_unix: int = 0
    ) -> str:
        """What a command prints, without the blanks around it. Raises: GitError, DiskFull."""
        result = self.run(*arguments, stdin=stdin, index=index, alone=alone, time_unix=time_unix)
        return result.stdout.decode("utf-8", "surrogateescape").strip()

    def contents(self, object_ids: Iterable[str], max_bytes: int = MAX_OUTPUT_BYTES) -> dict[str, bytes]:
        """Of blobs, by id; those that are missing or larger than `max_bytes` are left out. Raises: GitError."""
        asked = "\n".join(dict.fromkeys(object_ids)).encode()
        checked = (line.split(" ") for line in self.text("cat-file", "--batch-check", stdin=asked).split("\n"))
        small = [line[0] for line in checked if len(line) == 3 and line[1] == "blob" and int(line[2]) <= max_bytes]
        said = io.BytesIO(self.run("cat-file", "--batch", stdin="\n".join(small).encode()).stdout)
        found = dict[str, bytes]()
        for name in small:
            found[name] = said.read(int(said.readline().split()[2]))
            said.read(1)
        return found


def listed(said: bytes) -> Iterator[tuple[list[str], str]]:
    """The entries that `ls-tree -z` or `ls-files --stage -z` printed: three facts and the path of each."""
    for line in said.decode("utf-8", "surrogateescape").split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            yield facts.split(" "), path


def quoted(name: str) -> bytes:
    """A path as git reads it from lists and streams: between double quotes, with C escapes."""
    return b'"' + os.fsencode(name).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _is_disk_full(said: str) -> bool:
    """By the last lines, which are git's own: before them it may print text of a diff."""
    return any(reason in line for reason in _NO_SPACE for line in said.strip().splitlines()[-2:])


def _failure(command: str, status: int, said: str) -> RatchetError:
    if _is_disk_full(said):
        return DiskFull("The disk is full, so git could not keep a change.", hint="Free some space and resume the run.")
    ended = "it took too long or said too much, and was ended" if status < 0 else f"status {status}"
    errors = [line for line in said.splitlines() if line.startswith(("error: ", "fatal: "))]
    return GitError(f"git {command} failed: {errors[0] if errors else ended}")
