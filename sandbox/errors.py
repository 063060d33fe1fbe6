"""The root of the exception tree; every error a person may meet says what to do and has an exit status.

    RatchetError                    1   (sandbox/errors.py)
    ├── SandboxError               30   the sandbox itself failed; never the fault of a candidate
    │   ├── SandboxUnavailable     31   the provider cannot work on this machine
    │   ├── DiskFull               32   no space left for trees, inputs or outputs
    │   ├── DeviceBusy             33   another run is timing on this card
    │   ├── ContainmentNotHeld     34   a control that was asked for is not found from inside
    │   ├── ImageUnusable          35   an image is missing, or not one that targets can run in
    │   ├── ImageBuildFailed       36   an image could not be made
    │   └── NoSuchGpu              37   the GPU that was asked for is not there
    ├── ToolError …                     (tools/errors.py: workload, target, judge)
    └── AgentError …                    (agent/errors.py: run, resume, command line)

A bad candidate is data, not an exception: see `tools/judging/verdict.py`.
"""

import errno


class RatchetError(Exception):
    """Something a person has to know. `hint` is one sentence that says what to do next."""

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SandboxError(RatchetError):
    """The sandbox broke: not a finding about the code that ran in it."""

    exit_status = 30


class SandboxUnavailable(SandboxError):
    """This provider cannot run here."""

    exit_status = 31


class EngineLost(SandboxUnavailable):
    """The container engine went away while something ran in it."""

    def __init__(self, during: str) -> None:
        super().__init__(
            f"the container engine went away {during}",
            hint="Start it again (sudo systemctl start docker), then resume it with `agent resume`; what was proven "
            "is kept.",
        )


class EngineRefused(SandboxUnavailable):
    """The container engine answers, and makes or starts no container of the kind that is needed."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="The engine's own log says more (journalctl -u docker); or choose --sandbox bwrap."
        )


class DiskFull(SandboxError):
    """The disk is full; nothing already proven is lost."""

    exit_status = 32


class DeviceBusy(SandboxError):
    """Another run is timing on this card."""

    exit_status = 33


class ImageUnusable(SandboxError):
    """An image is missing, made for another kind of machine, or without a Python and a PyTorch that will do."""

    exit_status = 35


class ImageBuildFailed(SandboxError):
    """An image could not be made; what was there before is as it was."""

    exit_status = 36


class NoSuchGpu(SandboxError):
    """The GPU that was asked for is not there."""

    exit_status = 37


class ContainmentNotHeld(SandboxError):
    """A control that was asked for is not found from inside: nothing of the target is run."""

    exit_status = 34


class Unusable(SandboxError):
    """Starting a command failed at one stage: those of `supervision.supervisor.LaunchFailure`, or a provider's feature.

    Providers catch it to try with less, or to say what is missing.
    """

    def __init__(self, stage: str, message: str, *, hint: str = "", error_number: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.stage, self.error_number = stage, error_number


def means_disk_full(number: int | None) -> bool:
    """Whether this errno is the kernel's word for it: no space, or no more of a quota."""
    return number in (errno.ENOSPC, errno.EDQUOT)
