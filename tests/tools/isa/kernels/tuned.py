"""A row's mean under an autotuner, with a constant that follows from the arguments."""

# ruff: noqa: F722
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"ROWS": 1}, num_warps=1),
        triton.Config({"ROWS": 4, "waves_per_eu": 2}, num_warps=4),
    ],
    key=["columns"],
)
@triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["columns"])})
@triton.jit
def means(
    x_ptr: "*bf16:16",
    out_ptr: "*fp32:16",
    columns: "i32:16" = 1000,
    ROWS: tl.constexpr = 1,
    BLOCK: tl.constexpr = 0,
):
    row = tl.program_id(0) * ROWS
    at = tl.arange(0, BLOCK)
    for number in tl.static_range(ROWS):
        x = tl.load(x_ptr + (row + number) * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        tl.store(out_ptr + row + number, tl.sum(x, 0) / columns)
