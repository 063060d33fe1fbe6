"""Pydantic models for worker replies; nothing unvalidated reaches the host. None of it is evidence.

Values too large to be sent back with every request, and names that cannot be printed, are refused.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from tools.plain_text import plain

MOST_CASES = 256
_MOST_BYTES = 8 << 10  # of a shape, and of all constants, as JSON: they go back with requests, for all cases at once
_T = TypeVar("_T")
_Short = Annotated[str, Field(max_length=200)]
_Size = Annotated[int, Field(ge=0, lt=1 << 62)]


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a name with characters that cannot be printed")
    return name


def _small(declared: _T) -> _T:
    try:
        size = len(json.dumps(declared))
    except RecursionError:
        raise ValueError("nested without end") from None
    if size > _MOST_BYTES:
        raise ValueError(f"over {_MOST_BYTES >> 10} KiB")
    return declared


Name = Annotated[StrictStr, Field(max_length=200), AfterValidator(_printable)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class DescribedCase(BaseModel):
    """A phase and a shape of it, as the entry declares them."""

    phase: Name = ""
    shape: Annotated[dict[Name, Any], AfterValidator(_small)] = Field(default_factory=dict)
    work: dict[Name, Amount] = Field(default_factory=dict, max_length=16)


class Environment(BaseModel):
    """Versions and device according to torch; `agent.environment.Guest` keeps some of it for the report."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    device: Literal["cpu", "cuda"]
    python: _Short | None = None
    torch: _Short | None = None
    hip: _Short | None = None
    cuda: _Short | None = None
    rocm: _Short | None = None
    llvm: _Short | None = None
    hipblaslt: _Short | None = None
    machine: _Short | None = None
    triton: _Short | None = None
    transformers: _Short | None = None
    aiter: _Short | None = None
    vllm: _Short | None = None
    flash_attn: _Short | None = None
    cpp_compiler: StrictBool = False
    library_bytecode: StrictBool = True
    gpu_name: _Short | None = None
    gpu_count: _Size | None = None
    gfx: _Short | None = None
    compute_units: _Size | None = None
    gpu_memory_bytes: _Size | None = None
    installed: list[Annotated[str, Field(max_length=4096)]] = Field(default_factory=list, max_length=16)
    """Folders of packages according to the interpreter; `open_referee.installed` checks them."""


class Tolerance(BaseModel):
    """What the entry's `tolerance()` gives; without one, nothing."""

    model_config = ConfigDict(extra="forbid")

    rtol: Amount | None = None
    atol: Amount | None = None


class Recipe(BaseModel):
    """How far an observed script must run before its modules, and the objects that its calls are given, can be had, and
    which of its calls are judged.
    """

    model_config = ConfigDict(extra="forbid")

    roots: Annotated[dict[Name, Annotated[StrictInt, Field(ge=0, lt=1 << 20)]], Field(min_length=1, max_length=16)]
    """By name, the number of the first call of each module that is judged, among the calls of outermost modules."""
    buffers: Annotated[list[Name], Field(max_length=4096), AfterValidator(_small)]
    """That calls write to: what they hand on begins again in them."""
    objects: Annotated[list[list[Name]], Field(max_length=256), AfterValidator(_small)]
    """Of each the number of the call, then the way to it in its arguments."""
    cases: Annotated[list[Name], Field(min_length=1, max_length=MOST_CASES)]
    methods: Annotated[list[tuple[Name, Name]], Field(max_length=16)]
    """Classes and names of methods by which the script enters a module, where it is not called itself."""
    called: Annotated[list[Name], Field(min_length=1, max_length=256), AfterValidator(_small)]
    """`PATH` or `PATH:METHOD` of all that is called, in the module."""
    autocast: dict[Literal["cpu", "cuda"], Literal["bfloat16", "float16", "float32"]]
    """By device the type that calls are made under; none where it is off."""


class Described(BaseModel):
    """The reply to `describe`."""

    form: Literal["declared", "kernelbench", "observed"]
    mode: Literal["inference", "training"]
    cases: list[DescribedCase] = Field(min_length=1, max_length=MOST_CASES)
    declares: list[Name] = Field(max_length=64)
    constants: Annotated[list[StrictInt | Name], AfterValidator(_small)]
    tolerance: Tolerance
    environment: Environment
    recipe: Recipe | None = None
    notes: list[Annotated[str, AfterValidator(plain)]] = Field(default_factory=list, max_length=16)
    """What a person should know of how the entry was read."""


# which algorithm a library takes, of those that the target's settings permit
PREFERENCES = frozenset(["torch.backends.cudnn.benchmark"])


class Built(BaseModel):
    """The reply to `build`."""

    is_module: StrictBool


class SavedRows(BaseModel):
    """The reply of a reference to `save`: of large tensors what `sandbox/guest/tensors.py:some_rows` chose."""

    rows: list[tuple[_Size, list[_Size], list[_Size], _Size]] = []


class SavedInit(BaseModel):
    """The reply to `save_init`."""

    saved: StrictBool


class LookedUp(BaseModel):
    """The reply to `lookups`: numbers of integer arguments, and the rows of what each looks up."""

    rows: list[tuple[_Size, _Size]]


class Strengthened(BaseModel):
    """The reply to `strengthen`: names of weights that change no result."""

    without_effect: list[Annotated[str, AfterValidator(plain)]]


class Refused(BaseModel):
    """The reply to `refused`: classes of what a call raised, the nearest first; none where it answered."""

    raised: list[Annotated[str, AfterValidator(plain)]]


class Settings(BaseModel):
    """The reply to `settings`: what of the process is not as it was before the target was loaded."""

    changed: dict[Annotated[str, AfterValidator(plain)], Annotated[str, AfterValidator(plain)] | None]
    drew: list[Annotated[str, AfterValidator(plain)]] = []

    def beside(self, original: Settings) -> tuple[list[str], list[str]]:
        """(what a change sets otherwise than the original does, what of it steps are meant to set), in words."""
        mine, theirs = self.changed, original.changed
        names = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name, ...) != theirs.get(name, ...))
        told = {name: f"{name} {'as it was' if name not in mine else f'to {mine[name]}'}" for name in names}
        preferred = [told[name] for name in names if name in PREFERENCES]
        drawn = [f"the state of {name}" for name in sorted({*self.drew} - {*original.drew})]
        return [told[name] for name in names if name not in PREFERENCES] + drawn, preferred


class AsBuilt(BaseModel):
    """The reply to `as_built`: parameters in their order and whether each learns; the state dict it begins with."""

    learns: dict[str, StrictBool]
    state: list[str]
    digest: str


class Memory(BaseModel):
    """The reply to `memory`."""

    peak_bytes: _Size


class Compiled(BaseModel):
    """The reply to `compiled`: what torch.compile made in this worker, and why calls were not recorded."""

    graphs: _Size
    graph_breaks: _Size
    reasons: list[Annotated[str, AfterValidator(plain)]] = Field(max_length=3)
    recompiles: _Size
    recompile_reasons: list[Annotated[str, AfterValidator(plain)]] = Field(max_length=3)
    not_recorded: list[Annotated[str, AfterValidator(plain)]] = Field(max_length=3)


class Answer(BaseModel):
    """The reply to `compare`."""

    passed: StrictBool
    message: str = ""


def what_is_wrong(error: ValidationError) -> str:
    """The first thing, in a line: `cases.0.phase: …`."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return plain(f"{'.'.join(map(str, first['loc']))[:200]}: {first['msg']}")
