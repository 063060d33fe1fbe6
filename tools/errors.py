"""Errors of the tools: what a person gave us cannot be worked with, or a tool itself failed.

    RatchetError                    1   (sandbox/errors.py)
    └── ToolError
        ├── TargetError            14   the target cannot be worked with
        │   ├── NoSuchTarget       10   it is not there, or is no folder
        │   ├── NoSuchEntry        11   the entry is not a file inside the target
        │   ├── TargetTooLarge     12   more bytes or files than one run copies
        │   └── TargetUnreadable   13   its files cannot be read by this user
        ├── WorkloadError        40 …   the entry cannot be judged as it is; one status for each kind, see below
        ├── GitError               25   git failed in one of our repositories   (tools/private_git.py)
        ├── ClockNotRecorded       60   a recorded clock was asked for what it does not hold
        ├── GroundsChanged         72   what judging rests on was changed during the run
        ├── IncumbentFails         74   what was proven, or the original, no longer runs when it is timed
        ├── DeviceLost             75   the GPU stopped working during the run
        ├── NoSuchKernel           76   a file holds no Triton kernel, not the one asked for, or several
        ├── KernelNotCompiled      77   a Triton kernel cannot be compiled as it is described
        └── UnknownArchitecture    78   an architecture that is not in the table of devices

A bad candidate is data, not an exception: see `tools/judging/verdict.py` and `tools/diff/patch.py`.
"""

from __future__ import annotations

from sandbox.contract import Ended
from sandbox.errors import RatchetError


class ToolError(RatchetError):
    """A tool could not do its work; never a finding about a candidate."""


class TargetError(ToolError):
    """The target cannot be worked with."""

    exit_status = 14


class NoSuchTarget(TargetError):
    """The target is not there, or is no folder."""

    exit_status = 10


class NoSuchEntry(TargetError):
    """The entry is not a file inside the target."""

    exit_status = 11


class TargetTooLarge(TargetError):
    """The target holds more than one run copies."""

    exit_status = 12


class TargetUnreadable(TargetError):
    """Files that matter cannot be read by this user."""

    exit_status = 13


class WorkloadError(ToolError):
    """The entry cannot be judged as it is."""

    exit_status = 40


_LONGEST_LINE = 200  # of what a target printed, in a message


def workload_error(kind: str, message: str, where: str, entry: str, ended: Ended | None) -> WorkloadError:
    """The error of one kind, with what to do about it. Unknown kinds are reported as they came."""
    status, says, hint = WORKLOAD_KINDS.get(kind, (40, "could not be run", "Run the entry by itself and see."))
    error = WorkloadError(f"{entry} {says}: {message}{f' (at {where})' if where else ''}", hint=hint)
    error.exit_status = status
    if ended is not None and ended.output_tail.strip():
        last = ended.output_tail.strip().splitlines()[-12:]
        error.message += "\nThe last it printed:\n" + "\n".join(line[-_LONGEST_LINE:] for line in last)
    return error


_EXITS = (
    "It is run without arguments: give those defaults, and move what should run as a script under "
    "if __name__ == '__main__'."
)
# kind -> exit status, what happened, what to do
WORKLOAD_KINDS = {
    "unknown_form": (
        41,
        "has no form that can be judged",
        "Declare build() and inputs(seed), use KernelBench form "
        "(Model, get_inputs(), get_init_inputs()), or call a torch.nn.Module in the script.",
    ),
    "trains": (
        83,
        "cannot be judged as it is",
        "What is timed then is the forward pass in training mode; the gradients that go back from it are compared.",
    ),
    "bad_declaration": (42, "declares something unusable", "See the workload contract in README.md."),
    "entry_raised": (
        43,
        "raises when it is loaded",
        "Run it by itself with the same --python, without arguments and input, until it loads.",
    ),
    "build_raised": (44, "raises in build()", "Call build() by itself with the same --python until it returns."),
    "inputs_raised": (45, "raises when inputs are made", "Make inputs(seed) work for any integer seed and shape."),
    "call_raised": (46, "raises when the callable is called", "Call build()(*inputs(0)) by itself until it returns."),
    "hangs": (47, "does not come to an end", "Make it shorter, or give it more time with --time-limit."),
    "too_slow": (
        82,
        "takes too long for the time budget",
        "Give more by --budget-minutes, or show less work in the entry.",
    ),
    "output_flood": (48, "prints without end", "Let it print less; nothing it prints is read."),
    "exited_as_success": (49, "calls sys.exit", _EXITS),
    "entry_exited": (49, "calls sys.exit", _EXITS),
    "out_of_memory": (61, "runs out of memory", "Use a smaller workload, or allow more with --memory-gib."),
    "died": (62, "dies", "Run it by itself with the same --python; a crash or os._exit in it looks like this."),
    "no_tensors": (63, "returns nothing that can be compared", "Return tensors, or declare outputs(result) that does."),
    "not_deterministic": (
        64,
        "differs between two runs of itself",
        "Seed it, or turn dropout and sampling off in build().",
    ),
    "degenerate": (65, "cannot tell right from wrong", "Use inputs and weights whose output depends on them."),
    "too_many_processes": (66, "starts too many processes", "Ratchet judges one process on one device."),
    "no_network": (
        81,
        "needs a network",
        "Nothing of a target has one. Have it load what it needs once by itself, "
        "then show it that folder with --mount; HF_HUB_CACHE and TORCH_HOME are handed on.",
    ),
    "no_torch": (
        80,
        "cannot be run",
        "Name an interpreter that has PyTorch with --python, or an image with --image: "
        "`agent image list` shows which images have one.",
    ),
    "disk_limit": (
        79,
        "fills the disk",
        "Let it write less, or free some space: one worker may take a quarter of what is free when a run starts.",
    ),
    "forged_reply": (67, "interferes with the referee", "It writes to a descriptor that is not its own."),
    "interfered": (67, "interferes with the referee", "It touches folders that are not its own."),
    "outputs_raised": (68, "raises in outputs()", "Make outputs(result) work on what a call returns."),
    "compare_raised": (69, "raises in compare()", "Make compare(out, ref) return True or False."),
    "several_ranks": (
        73,
        "needs several processes",
        "Ratchet judges one process on one device: give it an entry that runs on one, without torch.distributed.",
    ),
    "state_rejected": (71, "does not load its own state dict", "Make load_state_dict(state_dict()) work."),
}


class ClockNotRecorded(ToolError):
    """A recorded clock was asked for a comparison it does not hold."""

    exit_status = 60


class GroundsChanged(ToolError):
    """The guest, the pristine tree or installed packages were changed during the run: nothing more can be judged."""

    exit_status = 72


class IncumbentFails(ToolError):
    """What was proven, or the original, no longer runs by itself when it is timed."""

    exit_status = 74

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="Run the entry by itself and see; the run can be resumed, and what was proven is kept."
        )


class DeviceLost(ToolError):
    """The GPU stopped working, or went away, during the run."""

    exit_status = 75

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="`dmesg` tells what its driver says. Once it works, resume the run; what was proven is kept."
        )


class NoSuchKernel(ToolError):
    """The file holds no Triton kernel, not the one that was asked for, or several of which none was named."""

    exit_status = 76


class KernelNotCompiled(ToolError):
    """A Triton kernel cannot be compiled: its file, its description, the compiler or Triton itself refuses."""

    exit_status = 77


class UnknownArchitecture(ToolError):
    """An architecture that is not in the table of devices."""

    exit_status = 78
