"""Read Triton's GPU IR as text: how wide the layouts of loads are, and what goes through LDS. No text raises.

A conversion of layouts may be done in registers or through LDS; the IR does not say which, so where a kernel uses no
LDS it counts as done in registers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 16 << 20  # characters
_LONGEST_LINE = 4000
_ALIAS = re.compile(r"#(\w+) = #ttg\.(\w+)<(.*)>\s*$")
_LIST = re.compile(r"(\w+) = \[([\d, ]*)\]")
_NUMBER = re.compile(r"(\w+) = (\d{1,6})\b")
_OPERATION = re.compile(r"\s*(?:%[\w.:$#-]+(?:, %[\w.:$#-]+)* = )?\"?([a-z][\w]*\.[\w.]+)\"?[ (]?(.*)")
_TENSOR = re.compile(r"tensor<((?:\d{1,9}x)*)(?:!tt\.ptr<(\w+)(?:, \d+)?>|(\w+))(?:, (#[\w.]+))?")
_POINTER = re.compile(r"!tt\.ptr<(\w+)")
_LOAD = re.compile(r"(?:tt\.load|\w+\.buffer_load|\w+\.buffer_load_to_local|ttg\.async_copy_global_to_local)$")
_STORE = re.compile(r"(?:tt\.store|\w+\.buffer_store)$")
_CONTIGUITY = re.compile(r"contiguity = (\d{1,4})")
_LOOPS = ("scf.for", "scf.while")
_REMAINDER = re.compile(r"arith\.(rem[su]i|andi) %[\w.#-]{1,200}, (%[\w.#-]{1,200}) : i\d")
_CONSTANT = re.compile(r"\s*(%[\w.#-]{1,200}) = arith\.constant (\d{1,6}) : i\d")


@dataclass(frozen=True)
class Access:
    """A load or store of a tensor. `bits` are those that one lane holds next to each other; 0 when it is unknown."""

    store: bool
    element_bits: int
    bits: int
    layout: str  # "blocked", "amd_mfma", ...
    in_loop: bool


@dataclass(frozen=True)
class Layouts:
    accesses: tuple[Access, ...] = ()
    conversions: int = 0  # from one layout to another
    conversions_in_loops: int = 0
    round_trips: int = 0  # of them and of pairs of store and load in LDS, when the kernel uses LDS
    round_trips_in_loops: int = 0
    stagings: int = 0  # loads of what waits in LDS for a product, which is what LDS is for
    reductions: int = 0
    products: int = 0  # tt.dot
    products_in_loops: int = 0
    plain_shared: int = 0  # layouts of LDS that neither swizzle nor pad
    programs: int = 0  # reads of the program's number
    remainders: tuple[int, ...] = ()  # of one number by these constants, as a renumbering of programs takes


def read(text: str, *, lds_bytes: int) -> Layouts:
    """Of one kernel, which asks for so much LDS."""
    lines = [line[:_LONGEST_LINE] for line in text[:LONGEST].splitlines()]
    aliases = {m[1]: (m[2], m[3]) for line in lines if (m := _ALIAS.match(line))}
    accesses: list[Access] = []
    found: Counter[str] = Counter()
    for name, rest, in_loop in _operations(lines):
        if _LOAD.match(name) or _STORE.match(name):
            made = _access(name, rest, aliases, in_loop)
            if made is not None:
                accesses.append(made)
        kind = _kind(name, rest)
        found[kind] += 1
        found[kind + " in loops"] += in_loop
    through_lds = lds_bytes > 0
    return Layouts(
        accesses=tuple(accesses),
        conversions=found["conversion"],
        conversions_in_loops=found["conversion in loops"],
        round_trips=found["conversion"] + found["reload"] if through_lds else 0,
        round_trips_in_loops=found["conversion in loops"] + found["reload in loops"] if through_lds else 0,
        stagings=found["staging"],
        reductions=found["reduction"],
        products=found["product"],
        products_in_loops=found["product in loops"],
        plain_shared=sum(_plain(kind, body) for kind, body in aliases.values()),
        programs=found["program"],
        remainders=tuple(sorted(set(_remainders(lines)))),
    )


def _operations(lines: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Each operation, with what follows its name, and whether a loop is around it."""
    regions: list[bool] = []  # of those that are open: whether it is a loop
    for line in lines:
        if line.lstrip().startswith("}"):
            if regions:
                regions.pop()
            if line.rstrip().endswith("{"):
                regions.append(any(word in line for word in _LOOPS) or " do {" in line)
            continue
        match = _OPERATION.match(line)
        if match:
            yield match[1], match[2], any(regions)
        if line.rstrip().endswith("{"):
            regions.append(bool(match and match[1] in _LOOPS))


def _kind(name: str, rest: str) -> str:
    if name == "ttg.convert_layout":
        return "conversion"
    if name == "ttg.local_load":
        return "staging" if "dot_op" in rest or "linear" in rest else "reload"
    if name in ("tt.dot", "tt.dot_scaled"):
        return "product"
    if name in ("tt.reduce", "tt.scan"):
        return "reduction"
    if name == "tt.get_program_id":
        return "program"
    return "other"


def _remainders(lines: list[str]) -> Iterator[int]:
    """By which constants: as remainders, or as the last bits of a number."""
    constants = {match[1]: int(match[2]) for line in lines if (match := _CONSTANT.match(line))}
    for line in lines:
        match = _REMAINDER.search(line)
        if match and match[2] in constants:
            yield constants[match[2]] + (match[1] == "andi")


def _access(name: str, rest: str, aliases: dict[str, tuple[str, str]], in_loop: bool) -> Access | None:
    tensors = list(_TENSOR.finditer(rest))
    if not tensors:
        return None  # a scalar has no layout
    store = bool(_STORE.match(name))
    # the data of a load comes last; a store's type is that of its data, or of its pointers
    chosen = tensors[-1]
    pointers = _POINTER.findall(rest)  # what goes straight into LDS has a tensor of offsets only
    element_bits = bits_of(pointers[-1] if pointers else chosen[3])
    kind, body = aliases.get((chosen[4] or "#")[1:], ("", ""))
    contiguity = _CONTIGUITY.search(rest)
    elements = int(contiguity[1]) if contiguity else _next_to_each_other(kind, body)
    return Access(store, element_bits, min(128, elements * element_bits), kind, in_loop)


def _next_to_each_other(kind: str, body: str) -> int:
    """Elements of one lane along the fastest dimension; 0 for layouts that do not say so simply."""
    lists = {m[1]: [int(n) for n in m[2].split(",") if n.strip()] for m in _LIST.finditer(body)}
    sizes, order = lists.get("sizePerThread", []), lists.get("order", [])
    if kind != "blocked" or not sizes or not order or order[0] >= len(sizes):
        return 0
    return sizes[order[0]]


def _plain(kind: str, body: str) -> bool:
    numbers = {m[1]: int(m[2]) for m in _NUMBER.finditer(body)}
    return kind == "swizzled_shared" and numbers.get("maxPhase", 0) == 1


def bits_of(element: str) -> int:
    """Of an element type as MLIR writes it: `bf16`, `i1`, `f8E4M3FN`; 0 when it is none."""
    match = re.match(r"(?:bf|f|i|ui|tf)(\d{1,3})", element or "")
    return int(match[1]) if match else 0
