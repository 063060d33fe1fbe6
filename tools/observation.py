"""What an observer saw in a call: classes, operations, and the places that a rewriter could start from.

The guest that tells it runs in the target's process, so nothing comes in that is not of this form, and nothing of it is
evidence: it says where to look. Shares are of the time of all observed calls, from 0 to 1. `sandbox/guest/observe.py`
and its siblings make it, and say how.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

_MOST_ROWS = 200  # as many as the guest sends of any one table
_Text = Annotated[str, Field(max_length=1000)]
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_Shape = Annotated[list[_Count], Field(max_length=64)]


class _Row(BaseModel):
    # "class" is no name that Python allows; what a newer guest tells besides is left out
    model_config = ConfigDict(strict=True, extra="ignore", use_attribute_docstrings=True)


class ClassPlace(_Row):
    """A class, and where its source is."""

    name: _Text = Field(alias="class")
    module: _Text
    file: _Text
    """Relative to the tree; of third-party code absolute, and empty where there is no source."""
    line: _Count
    line_end: _Count
    third_party: bool


class Frame(_Row):
    """A place in a function that was on the stack."""

    file: _Text
    third_party: bool
    function: _Text
    first_line: _Count
    """Of the function."""
    line: _Count
    module: _Text
    owner: _Text = Field(alias="class")
    """Class of `self`, where that is a module."""
    plain_attributes: list[_Text]
    """Attributes of `self` that hold plain values, `config.hidden_size` among them."""
    plain_parameters: list[_Text] = Field(default_factory=list)
    """Arguments that held plain values when it was first seen."""


_Frames = Annotated[list[Frame], Field(max_length=32)]  # innermost first


class OutermostClass(ClassPlace):
    path: _Text
    methods: list[_Text] = Field(default_factory=lambda: [""])
    """By which it is entered; an empty one where it is called itself."""


class Callable(ClassPlace):
    """What the entry gave to be called."""

    is_module: bool
    outermost: list[OutermostClass]
    """The outermost classes of the target's own in it."""


class ModuleClass(ClassPlace):
    """All instances of a class of modules."""

    paths: list[_Text]
    count: _Count
    calls: _Count
    parameters: _Count
    inclusive_share: _Share
    self_share: _Share
    plain_attributes: list[_Text]
    children: dict[_Text, _Text]
    """Name of a child -> its class."""
    configured: bool = True
    """Whether it has its own constructor, by which instances may differ."""
    hooked: bool


class OpShare(_Row):
    """What was asked of torch by this name."""

    name: _Text
    share: _Share
    count: _Count


class Found(_Row):
    """Something that happens at one place."""

    frames: _Frames
    count: _Count
    """How often in the observed calls."""
    share: _Share


class Linear(_Row):
    name: _Text
    in_features: _Count
    out_features: _Count
    bias: bool
    plain: bool
    """`torch.nn.Linear` itself, and no subclass."""
    dtype: _Text
    hooked: bool


class LinearGroup(ClassPlace):
    """Linear layers below one class that were given the same tensor."""

    names: list[_Text]
    layers: list[Linear]
    paths: list[_Text]
    count: _Count
    frames: _Frames
    share: _Share


class _NormFormula(_Row):
    """What a norm computes."""

    kind: _Text
    """`rms` or `layer`."""
    weight: _Text
    bias: _Text
    """A parameter, or empty."""
    eps: _Text
    """An attribute, or empty."""
    eps_value: _Number
    offset: _Number
    order: _Text
    """Whether it is rounded before the weight is applied: `cast_then_weight` or `weight_then_cast`."""
    dtype: _Text
    """Of what it was given."""


class Norm(ClassPlace, _NormFormula):
    """A class that computes a normalisation."""

    paths: list[_Text]
    count: _Count
    shape: _Shape
    share: _Share


class AddNorm(Found, _NormFormula):
    """`norm(a + b)`, the sum and the call of the norm in one function."""

    name: _Text = Field(alias="class")
    attribute: _Text
    """The norm, by its path in the module that calls it."""
    add_line: _Count
    hooked: bool


class Rotary(Found):
    """`x * cos + rotate_half(x) * sin`."""

    shape: _Shape
    dtype: _Text


class TopK(Found):
    """The largest of a softmax in float32."""

    shape: _Shape
    """Of the softmax."""
    taken: _Count


class Gated(Found):
    """`act(a) * b`."""

    activation: Literal["relu", "silu", "gelu", "gelu_tanh"]
    attribute: _Text
    """The module that computed it, by its path in the one that multiplies; empty where that is a function."""
    shape: _Shape


class Mask(_Row):
    """An operation that masks scores."""

    operation: _Text
    line: _Count
    known: bool
    causal: bool
    empty_rows: bool
    lower_right: bool = False
    depends_on_data: bool = True
    kind: _Text = ""
    shape: _Shape | None = None
    dtype: _Text | None = None


class ByHand(_Row):
    """Attention that was computed as two products and a softmax, with these shapes."""

    scores_shape: _Shape
    q_shape: _Shape
    heads: _Shape
    key_heads: _Shape
    scale: _Number
    masks: list[Mask]
    dropout: _Number
    dtype: _Text
    lines: list[_Count]


class Fused(_Row):
    """Attention that was one call."""

    q_shape: _Shape
    k_shape: _Shape
    scale: _Number | None
    is_causal: bool
    enable_gqa: bool
    lines: list[_Count]


class Attention(Found):
    fused: bool
    cases: list[ByHand | Fused]


class Repeated(Found):
    """Key or value heads that were copied for the query heads they serve."""

    factor: _Count


class Copies(Found):
    """Copies at one place."""

    operation: _Text
    same: _Count
    """How many changed nothing."""
    needed: bool
    """Whether any of them was."""
    users: list[_Text]


class Constant(Found):
    """Operations whose operands all come from shapes."""

    mutated: bool
    """Written to after data had used it."""
    operations: list[_Text]


class Again(Found):
    """A module called on what it had been called on before: constants of the entry, or the same tensors twice."""

    name: _Text = Field(alias="class")
    attribute: _Text
    """Its path in the module that calls it."""
    constant: bool
    """Whether it depends on nothing but constants and weights, so that each call computes what the last one did."""


class Padding(_Row):
    """Positions of one case's arguments that a mask excludes in every row, and without which the result is the same."""

    mask: _Text | _Count
    """An argument of the callable, by its name or position."""
    value: StrictBool | StrictInt | _Number
    """Of the mask where padding is; its type is that of the mask: bool, of integers or of floats."""
    arguments: list[_Text | _Count] = Field(max_length=64)
    """Those that have as many positions, the mask among them."""
    kept: _Share
    """Part of the positions that some row needs."""
    share: _Share


class HostRead(_Row):
    """A place where Python waits for a value of a tensor."""

    operation: _Text
    fixed: bool
    """Whether the value depended on no input, no weight and nothing random."""
    frames: _Frames
    count: _Count


class HostCopy(HostRead):
    """A place where values go from the host to a device, which cannot be recorded."""


class LibrarySource(_Row):
    """A module of a library in which something was found; a copy of it can be changed."""

    module: _Text
    file: _Text
    """Absolute, where the target's interpreter has it."""
    library: _Text
    version: _Text
    text: str = Field(max_length=400 << 10)


class Observation(_Row):
    """Of one version of the target, over all its cases."""

    callable: Callable
    call_us: list[_Share]
    """Of each case; under no profiler, but never evidence."""
    ops: list[OpShare] = Field(max_length=_MOST_ROWS)
    classes: list[ModuleClass] = Field(max_length=_MOST_ROWS)
    linear_groups: list[LinearGroup] = Field(max_length=_MOST_ROWS)
    norms: list[Norm] = Field(max_length=_MOST_ROWS)
    add_norms: list[AddNorm] = Field(max_length=_MOST_ROWS)
    rotary: list[Rotary] = Field(max_length=_MOST_ROWS)
    topk: list[TopK] = Field(max_length=_MOST_ROWS)
    gated: list[Gated] = Field(max_length=_MOST_ROWS)
    attention: list[Attention] = Field(max_length=_MOST_ROWS)
    repeats: list[Repeated] = Field(max_length=_MOST_ROWS)
    copies: list[Copies] = Field(max_length=_MOST_ROWS)
    zeros: list[Found] = Field(max_length=_MOST_ROWS)
    """Made at one place, and written to before anything read them."""
    constants: list[Constant] = Field(max_length=_MOST_ROWS)
    again: list[Again] = Field(max_length=_MOST_ROWS)
    padding: list[Padding] = Field(max_length=_MOST_ROWS)
    """Of cases where there is any."""
    host_reads: list[HostRead] = Field(max_length=_MOST_ROWS)
    host_copies: list[HostCopy] = Field(max_length=_MOST_ROWS)
    sources: list[LibrarySource] = Field(default_factory=list, max_length=16)
    notes: list[_Text] = Field(default_factory=list, max_length=64)
    """Tables that could not be made of what was seen, and why."""
    truncated: bool
    """Whether more was seen than is here."""
