"""Run the target's own tests with the pytest of its interpreter, and report each outcome.

Runs in a copy, because tests may write next to themselves.
"""

from __future__ import annotations

import os
import shutil
import sys

# what one reply can carry; a suite beyond it counts with the tests that fit
MOST_BYTES = 2 << 20


class Suite:
    def __init__(self, tree, entry):
        self.tree = tree

    def op_run(self, only=()):
        """{"passed": ids, "failed": ids, "status": pytest's exit status}, or {"missing": "pytest"}.

        `only` names tests by their ids; without it pytest collects what it finds by the target's configuration.
        """
        try:
            import pytest
        except ImportError:
            return {"missing": "pytest"}
        place = self._copy()
        os.chdir(place)
        seen = _Outcomes()
        arguments = ["-q", "--tb=no", "-p", "no:cacheprovider", f"--rootdir={place}", *only]
        status = pytest.main(arguments, plugins=[seen])
        return {"status": int(status), **seen.as_reply()}

    def _copy(self):
        """The tree below HOME, and `sys.path` as `python -m pytest` there would have it."""
        home = os.environ["HOME"]
        with open(os.path.join(home, "pytest.ini"), "w") as file:
            file.write("[pytest]\n")  # the configurations of folders further up are not the target's
        place = os.path.join(home, "tree")
        shutil.copytree(self.tree, place, symlinks=True)
        for folder, _, _ in os.walk(place):
            os.chmod(folder, 0o755)
        original = os.path.realpath(self.tree)
        elsewhere = [p for p in sys.path if os.path.commonpath([original, os.path.realpath(p or ".")]) != original]
        sys.path[:] = [place, *elsewhere]
        return place


class _Outcomes:
    """A pytest plugin: a test has passed when its call has and nothing around it failed."""

    def __init__(self):
        self.passed, self.failed = {}, {}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed[report.nodeid] = True
        elif report.when == "call" and report.passed:
            self.passed[report.nodeid] = True

    def as_reply(self):
        passed, failed = [name for name in self.passed if name not in self.failed], list(self.failed)
        return {"passed": _fitting(passed), "failed": _fitting(failed)}


def _fitting(names):
    kept, size = [], 0
    for name in names:
        size += len(name.encode(errors="replace")) + 8
        if size > MOST_BYTES // 2:
            break
        kept.append(name)
    return kept
