"""What a profile says: the shares of a call by category, by kernel, by module and by step, and what is behind them.

Times are in microseconds per call unless a name says otherwise; shares are of all profiled calls, from 0 to 1.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tools.profiler.categories import Category

Cause = Literal[
    "launch-bound",
    "memory-bound",
    "compute-bound",
    "low occupancy",
    "register pressure",
    "under-filled grid",
    "bank conflicts",
    "divergence",
    "uncoalesced access",
    "unknown",
]
Bound = Literal["memory", "compute"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Ceilings(_Part):
    """What the device can reach at best, and how that is known."""

    memory_gbps: float | None = None
    peak_tflops: dict[str, float] = Field(default_factory=dict)
    """By data type: float64, float32, tf32, float16, bfloat16, float8."""
    launch_us: float | None = None
    """Shortest time between the starts of two kernels that do next to nothing."""
    source: str = "none"
    """"measured", or the datasheet's name."""


class Launch(_Part):
    """How a kernel was launched and built, from the trace, a tool or its machine code; None where it is not known."""

    workgroups: int | None = None
    workgroup_size: int | None = None
    registers: int | None = None
    """Of one lane, architectural and accumulation registers together."""
    accumulators: int | None = None
    lds_bytes: int | None = None
    scratch_bytes: int | None = None
    occupancy: float | None = None
    """Waves on a SIMD over the most that it holds, by registers, LDS and workgroup size."""
    counters: dict[str, float] = Field(default_factory=dict)


class KernelRow(_Part):
    """All launches of one kernel; on a CPU, of one operation."""

    name: str
    category: Category
    calls: float
    """Launches per call of the entry."""
    time_us: float
    share: float
    """Of the device's busy time."""
    mean_us: float
    op: str = ""
    """The operation that launched it most often."""
    module: str = ""
    """The class whose `forward` that was in."""
    where: str = ""
    """`file:line` of that class in the target, or in a library."""
    bytes: float | None = None
    """Read and written at least, per launch, from the shapes; None where they do not tell."""
    flops: float | None = None
    dtype: str = ""
    """In which it works; `tf32` for float32 that is taken for that."""
    gbps: float | None = None
    tflops: float | None = None
    speed_of_light: float | None = None
    """The larger of the two shares of what the device can reach."""
    bound: Bound | None = None
    """Which of the two that is."""
    cause: Cause = "unknown"
    why: str = ""
    launch: Launch = Launch()


class ModuleRow(_Part):
    """All instances of a class, without what lies in modules inside it."""

    name: str
    where: str = ""
    instances: int = 0
    time_us: float = 0.0
    share: float = 0.0


class Span(_Part):
    """One launch on the timeline."""

    start_us: float
    duration_us: float
    kernel: int
    """Index of its row."""
    stream: int = 0


class CategoryShare(_Part):
    category: Category
    time_us: float
    share: float


class StepCeiling(_Part):
    """The most that one of the ten steps could gain, if what it works on took only the time that it must."""

    step: str
    speedup: float | None
    """None: it has no bound."""
    reason: str
    if_free: float | None = None
    """The same if what it works on took no time at all: by shares alone, without what the device reaches."""


class CaseRow(_Part):
    """One shape or phase of the workload."""

    name: str
    call_us: float
    busy_us: float
    idle_share: float
    """Of the call, as that of the profile."""
    launches: float
    bottleneck: str
    """Its type."""


class Made(_Part):
    """When a profile was made, and with what; empty where the target's interpreter has none."""

    date: datetime
    torch: str = ""
    triton: str = ""
    platform: str = ""
    """Version of HIP or CUDA."""


class Profile(_Part):
    """One profile of one entry on one device."""

    entry: str
    made: Made | None = None
    device: str
    architecture: str = ""
    compute_units: int | None = None
    """As the device reports them; a partition of a card has fewer."""
    calls: int
    """Calls that were profiled."""
    call_us: float
    """Latency of a call without the profiler: the median, and of several cases the mean."""
    busy_us: float
    """Of a call: the time in which the device worked."""
    span_us: float
    """From the first kernel's start to the last one's end, of a call with the profiler, which makes it longer."""
    idle_share: float
    """Of a call without the profiler, as `1 - busy_us / call_us`; 0 where nobody knows how long that takes."""
    gap_us: float | None = None
    """Median time between the end of one kernel and the start of the next, with the profiler."""
    launches: float = 0.0
    """Kernels per call."""
    ceilings: Ceilings = Ceilings()
    cases: list[CaseRow] = Field(default_factory=list)
    """Of a workload with several; all else is of the mean call, and ceilings of steps are the geometric mean."""
    categories: list[CategoryShare] = Field(default_factory=list)
    kernels: list[KernelRow] = Field(default_factory=list)
    modules: list[ModuleRow] = Field(default_factory=list)
    steps: list[StepCeiling] = Field(default_factory=list)
    timeline: list[Span] = Field(default_factory=list)
    """Of one call, the first."""
    primary_bottleneck_component: str = ""
    primary_bottleneck_type: str = ""
    recommendations: list[str] = Field(default_factory=list)
    deeper: list[str] = Field(default_factory=list)
    """Commands for a closer look."""
    other_path: bool = False
    """In one case at least the trace takes so much longer than a call that it is probably not of the timed code."""
    notes: list[str] = Field(default_factory=list)
    """What is not known, and why."""

    @property
    def unclassified(self) -> float:
        return sum(each.share for each in self.categories if each.category == "unclassified")
