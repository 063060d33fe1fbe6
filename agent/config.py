"""The configuration of a run, validated and kept in its `run.json`. How a run is shown is not part of it."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    model_validator,
)

from agent.step_names import STEPS
from tools.hardware import ARCHITECTURES

# stricter than branch names and file names require: a run id is part of both
RUN_ID_PATTERN = r"^[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?$"
READ_BACK = {"read_back": True}  # validation context for a stored configuration: paths are not looked up on this disk


def new_run_id() -> str:
    """Sorts by time; the random end keeps two runs of one second apart."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def active_python(environment: Mapping[str, str] = os.environ) -> Path:
    """The interpreter of the active environment, else the one that runs this program.

    Links are kept: a virtual environment's `python` is a link to an interpreter without its packages.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = Path(environment.get(variable, "/nowhere")) / "bin" / "python"
        if python.exists():
            return python
    return Path(sys.executable)


def default_python(image: str | None) -> Path:
    """The interpreter where none is named; an image has its own, found by name."""
    return Path("python3") if image else active_python()


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def address(url: str | None) -> str | None:
    """Address of an endpoint, which files and messages show. Raises: ValueError where it contains credentials."""
    parts = urlsplit(url or "")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address holds a name or a password, which files and messages would show")
    return url


def program(path: Path) -> Path:
    """Make a path absolute; a bare name is looked up when it is used."""
    return path if path.name == str(path) else _absolute(path)


def _known_steps(names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in STEPS]
    if unknown or not names:
        raise ValueError(f"no such step: {', '.join(unknown) or 'an empty list'}; the steps are {', '.join(STEPS)}")
    return tuple(name for name in STEPS if name in names)


def _known_architectures(names: tuple[str, ...]) -> tuple[str, ...]:
    if names == ("all",):
        return tuple(ARCHITECTURES)
    unknown = [name for name in names if name not in ARCHITECTURES]
    if unknown:
        raise ValueError(f"not known: {', '.join(unknown)}; known are {', '.join(ARCHITECTURES)}, or all")
    return tuple(dict.fromkeys(names))


HostPath = Annotated[Path, AfterValidator(_absolute)]


class RunConfig(BaseModel):
    """One run, as asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    target: HostPath
    """Folder of the repository to make faster. It is read, never changed."""

    entry: str = Field(min_length=1)
    """Script that shows how the target is used, relative to the target."""

    python: Annotated[Path, AfterValidator(program)] = Field(default_factory=active_python)
    """Interpreter that runs the target; its environment has the target's torch. In an image, a name will do."""

    run_id: str = Field(default_factory=new_run_id, pattern=RUN_ID_PATTERN, max_length=64)
    """Name of the run, of its folder and of the branch `ratchet/<id>`."""

    runs_dir: HostPath
    """Folder that holds the run's folder."""

    sandbox: Literal["auto", "docker", "bwrap", "local"] = "auto"
    """Provider that runs the target's code; "auto" is replaced at the start by the first that contains it here."""

    image: str | None = Field(default=None, min_length=1)
    """Container image to run the target in, instead of showing it this machine's own software."""

    mounts: tuple[HostPath, ...] = ()
    """Further folders and files that the target may read, such as weights and data."""

    gpu: int | None = Field(default=None, ge=0)
    """Number of the GPU to use; None is the first that the environment leaves visible."""

    steps: Annotated[tuple[str, ...], AfterValidator(_known_steps)] = STEPS
    """Steps to walk, in the order of the ten; the others are reported as skipped."""

    time_limit_s: PositiveFloat = 120.0
    """Time one start of the entry may take before it is ended, in seconds."""

    budget_minutes: PositiveFloat | None = None
    """Time for the whole run, from its start to its report; None is no limit."""

    memory_gib: PositiveFloat | None = None
    """Memory one worker and all it starts may use, in GiB; None is four fifths of the machine's."""

    threads: PositiveInt = 1
    """CPU threads each timed worker computes with, and its cores: with more than one a shared machine is noisy."""

    seed: int | None = Field(default=None, ge=0, lt=2**63)
    """Seed of the test inputs, for tests and audits; None draws a secret one."""

    arch: Annotated[tuple[str, ...], AfterValidator(_known_architectures)] = ()
    """AMD architectures for which Triton kernels must compile without spills; empty is the device's own."""

    revalidates: HostPath | None = None
    """Folder of an earlier run whose kept changes are judged again; None looks for changes."""

    model: str | None = Field(default=None, min_length=1)
    """Model that proposes what the playbook does not, by its name at the endpoint; None asks none."""

    base_url: Annotated[str | None, AfterValidator(address)] = Field(default=None, min_length=1)
    """OpenAI-compatible endpoint; None is what OPENAI_BASE_URL says."""

    reviewer: str | None = Field(default=None, min_length=1)
    """Model that reviews each candidate and may only reject it; None is `model`."""

    replay: HostPath | None = None
    """File with the recorded exchanges of an earlier run, used instead of a model."""

    skills: tuple[HostPath, ...] = ()
    """Folders of further skill packs for the model, beside ours."""

    tokens: PositiveInt | None = 2_000_000
    """What may be spent on models: prompts and answers together."""

    dollars: PositiveFloat | None = None
    """What may be spent on models, by their prices; None is no limit."""

    price: tuple[NonNegativeFloat, ...] | None = Field(default=None, min_length=2, max_length=3)
    """Dollars for a million tokens of prompts, of answers and of cached prompts; None is what the table says."""

    tool_calls: PositiveInt = 80
    """Calls of tools that a model may make for one candidate."""

    attempts: PositiveInt = 12
    """Candidates of one step that are judged, at most."""

    record_clock: HostPath | None = None
    """File that every timing is written to."""

    replay_clock: HostPath | None = None
    """File of timings used instead of the clock, for tests and audits."""

    @model_validator(mode="before")
    @classmethod
    def _with_a_python(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("python"):
            return {**given, "python": default_python(given.get("image"))}
        return given

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> RunConfig:
        if info.context != READ_BACK:
            self._fits_the_disk()
        if self.image and self.sandbox not in ("auto", "docker"):
            raise ValueError("only --sandbox docker has images")
        if self.replay and self.model:
            raise ValueError("a run either asks a model or replays one")
        if self.record_clock and self.replay_clock:
            raise ValueError("a run either records its clock or replays one")
        return self

    def _fits_the_disk(self) -> None:
        if self.run_dir.resolve().is_relative_to(self.target.resolve()):
            raise ValueError(f"the runs folder {self.runs_dir} lies in the target, which is never written to")
        if missing := self.missing_mount():
            raise ValueError(f"there is no {missing} to mount")

    def missing_mount(self) -> Path | None:
        """The first that is not there; None when all are."""
        return next((mount for mount in self.mounts if not os.access(mount, os.F_OK)), None)

    @property
    def run_dir(self) -> Path:
        return self.runs_dir / self.run_id
