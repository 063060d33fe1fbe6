"""What a tuner found: how long our kernels take with other options of their launches, on the sizes that were seen.

A hint, never evidence of a gain: what is made of it is a candidate like any other. `sandbox/guest/tune.py` measures.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Option = Literal["BLOCK", "num_warps", "num_stages", "waves_per_eu"]
Choice = Annotated[dict[Option, Annotated[int, Field(ge=0, le=1 << 16)]], Field(max_length=4)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class Tried(_Row):
    """One choice of options. `us` is None where nothing can be launched so; `spills` counts spilled registers."""

    choice: Choice
    us: float | None = Field(gt=0)
    spills: int = Field(ge=0)


class Launch(_Row):
    """One kernel on one size: what it takes by its own rule, and with each choice. Microseconds, medians."""

    file: str = Field(max_length=4096)
    """Relative to the tree."""
    run: str = Field(max_length=100)
    rows: int = Field(ge=0)
    columns: int = Field(ge=0)
    rule_us: float = Field(gt=0)
    tried: list[Tried] = Field(max_length=64)

    def best(self, gain: float) -> Choice:
        """The fastest choice that spills nothing, if it is faster than the rule by more than `gain`; else empty."""
        right = [(each.us, number) for number, each in enumerate(self.tried) if each.us is not None and not each.spills]
        us, number = min(right, default=(self.rule_us, 0))
        return self.tried[number].choice if self.rule_us > (1 + gain) * us else {}


class Tuned(_Row):
    """Of all kernels of ours in one build, on one device."""

    device: str = Field(max_length=200)
    launches: list[Launch] = Field(max_length=64)
