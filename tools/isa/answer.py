"""Pydantic models of what a user describes and the guest answers when kernels are compiled, and what refusals mean.

Answers of another form are refused, and longer ones than a compiler has reason to give: the guest runs untrusted code.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tools.errors import KernelNotCompiled, NoSuchKernel, ToolError
from tools.plain_text import plain

MOST_VARIANTS = 64
Short = Annotated[str, StringConstraints(max_length=400)]
Long = Annotated[str, StringConstraints(max_length=4000)]
Kind = Literal[
    "no_triton",
    "not_loadable",
    "no_kernel",
    "no_such_kernel",
    "several_kernels",
    "no_signature",
    "bad_signature",
    "no_launch",
    "launch_raised",
    "died",
]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Description(BaseModel):
    """A kernel's description in a JSON file; `sandbox/guest/isa_signature.py` says what it means."""

    model_config = ConfigDict(extra="forbid")

    signature: dict[str, str | None] = Field(default_factory=dict)
    constexprs: dict[str, Any] = Field(default_factory=dict)
    aligned: list[str] = Field(default_factory=list)
    large: list[str] = Field(default_factory=list)
    values: dict[str, float | int | bool] = Field(default_factory=dict)
    num_warps: int = Field(4, ge=1, le=64)
    num_stages: int = Field(2, ge=0)
    num_ctas: int = 1
    waves_per_eu: int = Field(0, ge=0)
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    schedule_hint: str = ""
    allow_flush_denorm: bool = False
    enable_fp_fusion: bool = True
    llvm_fn_attrs: str = ""
    wgp_cu_mode: str = "wgp"


class Refusal(_Wire):
    """Nothing was compiled at all, and why."""

    kind: Kind
    message: Long = ""
    names: list[Short] = Field(default_factory=list, max_length=64)

    def error(self, file: str) -> ToolError:
        """As an exception for a person who named the file."""
        names = ", ".join(plain(name) for name in self.names)
        message, of = plain(self.message), NoSuchKernel if self.kind in _NO_KERNEL else KernelNotCompiled
        says, hint = _SAYINGS[self.kind]
        first = self.names[0] if self.names else "kernel"
        words = {"file": file, "message": message, "names": names or "none", "first": plain(first)}
        return of(says.format(**words), hint=hint.format(**words))

    def told(self) -> str:
        return self.error("the file").message


class Variant(_Wire):
    """One way to compile a kernel: of a configuration, of a launch, or the only one."""

    kernel: Short
    file: Long
    line: int
    config: Short = ""
    signature: dict[Short, Short] = Field(default_factory=dict, max_length=512)
    aligned: list[Short] = Field(default_factory=list, max_length=512)  # known to be divisible by 16
    constants: dict[Short, Short] = Field(default_factory=dict, max_length=512)
    options: dict[Short, Short] = Field(default_factory=dict, max_length=64)
    notes: list[Long] = Field(default_factory=list, max_length=16)


class Plan(_Wire):
    """What will be compiled, or why nothing will."""

    triton: Short = ""
    variants: list[Variant] = Field(default_factory=list, max_length=MOST_VARIANTS)
    error: Refusal | None = None


class Doing(_Wire):
    """What was being compiled; the compiler may crash over it."""

    variant: int
    arch: Short


class Outcome(_Wire):
    """Of one variant for one architecture: `error` in one line, or what Triton says besides the code."""

    error: Long = ""
    seconds: float = Field(0.0, ge=0)
    num_warps: int = Field(4, ge=1, le=64)
    num_stages: int = Field(2, ge=0, le=1000)
    shared: int = Field(0, ge=0, le=1 << 30)  # bytes of LDS a workgroup asks for at launch
    global_scratch_size: int = Field(0, ge=0)


_NO_KERNEL = ("no_kernel", "no_such_kernel", "several_kernels", "no_launch")
_DESCRIBE = (
    'Annotate them in the kernel (x_ptr: "*bf16:16", n: "i32:16", BLOCK: tl.constexpr = 1024), describe them '
    "in a file for --signature, or capture a launch with --launch; docs/isa.md shows each."
)
# kind -> what happened, what to do
_SAYINGS: dict[str, tuple[str, str]] = {
    "no_triton": ("Triton cannot be used: {message}.", "--python names an interpreter that has it."),
    "not_loadable": ("{file} cannot be loaded: {message}.", "Run it by itself with the same --python until it loads."),
    "no_kernel": (
        "{file} holds no Triton kernel.",
        "A kernel is a function under @triton.jit at the top of the file; "
        "for one made inside a function, capture a launch with --launch.",
    ),
    "no_such_kernel": ("{file} holds no kernel {message}; it holds {names}.", "Name one of them: {file}:{first}"),
    "several_kernels": ("{file} holds several kernels: {names}.", "Name one of them: {file}:{first}"),
    "no_signature": ("Of {message} it is not known what these are: {names}.", _DESCRIBE),
    "bad_signature": ("The kernel's description cannot be used: {message} ({names}).", _DESCRIBE),
    "no_launch": (
        "The script launched no such kernel of {file}; it launched {names}.",
        "Does it go through the kernel when its tensors are on a GPU?",
    ),
    "launch_raised": (
        "The script ended before it launched anything: {message}.",
        "It runs on the CPU, as if that were an AMD GPU; what needs a real one fails.",
    ),
    "died": ("Compiling ended without an answer: {message}.", "Compile the kernel by itself with the same --python."),
}
