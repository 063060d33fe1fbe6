"""Types and constants of a kernel, from its annotations and from a JSON file, which has the last word.

    x_ptr: "*bf16:16"           a pointer; also without the 16 it counts as divisible by it, as torch allocates
    n: "i32:16"  n: "i32:1"     an integer that is divisible by 16; one that is 1, which makes it a constant
    BLOCK: tl.constexpr = 1024  a constant

Triton takes a bare `*bf16` for the type of every launch; with a number behind it, it leaves the annotation alone.

The JSON: {"signature": {name: type, or null for None}, "constexprs": {name: value}, "aligned": [names] in place of all
pointers, "large": [names of tensors above 2 GiB], "values": {name: number} for heuristics, "num_warps": 4, ...}.
Does not guess a type or a constant: what is missing is said by name.
"""

import re

from .isa_refusal import Refusal, in_one_line
from .isa_variant import OPTIONS, Variant

_SHORT = {
    "bool": "i1",
    "int1": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "f16": "fp16",
    "f32": "fp32",
    "float8e4nv": "fp8e4nv",
    "float8e5": "fp8e5",
    "float8e4b8": "fp8e4b8",
    "float8e5b16": "fp8e5b16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}
_TYPES = {*_SHORT.values(), "u1"}
_FORM = re.compile(r"(const )?(\**)(k?)(?:tl\.|torch\.)?(\w+)(?::(16|1))?")
_OTHER_KEYS = ("signature", "constexprs", "aligned", "large", "values")


def variants(kernel, given, every_config):
    """One for each configuration of the autotuner, or the first alone. Raises: Refusal."""
    given = given or {}
    unknown = [name for name in given if name not in (*_OTHER_KEYS, *OPTIONS)]
    if unknown:
        raise Refusal("bad_signature", "these keys mean nothing here", unknown)
    strange = [
        name
        for key in ("signature", "constexprs", "aligned", "large")
        for name in given.get(key, ())
        if name not in kernel.jit.arg_names
    ]
    if strange:
        raise Refusal("bad_signature", f"{kernel.name} has no such parameter", strange)
    configs = kernel.configs if every_config else kernel.configs[:1]
    made = [_variant(kernel, given, config) for config in configs or [None]]
    if len(kernel.configs) > len(configs):
        made[0].notes.append(f"the first of {len(kernel.configs)} autotuning configurations")
    return made


def _variant(kernel, given, config):
    tuned = {name: value for name, value in config.all_kwargs().items() if value is not None} if config else {}
    tuned.update(given.get("constexprs", {}))
    options = {name: value for name, value in tuned.items() if name in OPTIONS}
    options.update({name: given[name] for name in OPTIONS if name in given})
    signature, constants, known, missing = {}, {}, {}, []
    defaults = _values(kernel, given, tuned)
    for number, parameter in enumerate(kernel.jit.params):
        name, path = parameter.name, (number,)
        if parameter.is_constexpr or name in tuned or given.get("signature", {}).get(name, "") is None:
            signature[name] = "constexpr"
            if name in tuned or name in given.get("signature", {}):
                constants[path] = _constant(tuned.get(name))
            elif name in kernel.heuristics:
                constants[path] = defaults[name] = _computed(kernel, name, defaults)
            elif parameter.has_default:
                constants[path] = parameter.default
            else:
                missing.append(name)
            continue
        kind, hint = _type(given.get("signature", {}).get(name) or parameter._param.annotation, parameter)
        if kind is None:
            missing.append(name)
            continue
        if hint == "1":
            signature[name], constants[path] = "constexpr", 1
            continue
        signature[name] = kind
        letters = _known(name, kind, hint, given)
        if letters:
            known[path] = letters
    if missing:
        raise Refusal("no_signature", kernel.name, missing)
    return Variant(kernel.jit, signature, constants, known, options, _called(kernel, config))


def _called(kernel, config):
    """`configuration 2: ROWS=4, num_warps=4`; nothing without an autotuner."""
    if config is None:
        return ""
    said = {name: value for name, value in config.all_kwargs().items() if value is not None and name != "num_ctas"}
    return f"configuration {kernel.configs.index(config) + 1}: " + ", ".join(f"{n}={v}" for n, v in said.items())


def _type(said, parameter):
    """The type in Triton's words, and `16`, `1` or nothing; None when this is no type."""
    if isinstance(said, type):
        said = said.__name__
    match = _FORM.fullmatch(str(said).strip("'\" "))
    if match:
        const, stars, k, name, hint = match.groups()
        kind = _SHORT.get(name, name)
        if kind not in _TYPES and k == "" and name.startswith("k"):
            kind = _SHORT.get(name[1:], name[1:])
            k = "k"
        if kind in _TYPES:
            return stars + ("k" if stars and (const or k) else "") + kind, hint or ""
    return (parameter.annotation_type or None) if said is parameter._param.annotation else None, ""


def _known(name, kind, hint, given):
    from triton import knobs

    aligned = given.get("aligned")
    letters = ""
    if hint == "16" or (kind.startswith("*") if aligned is None else name in aligned):
        letters += "D"
    if kind.startswith("*") and knobs.amd.use_buffer_ops and name not in given.get("large", ()):
        letters += "S"
    return letters


def _values(kernel, given, tuned):
    """What a heuristic is given for the arguments: what is known of them."""
    defaults = {p.name: p.default for p in kernel.jit.params if p.has_default}
    return {**defaults, **tuned, **given.get("values", {})}


def _computed(kernel, name, values):
    try:
        return kernel.heuristics[name](dict(values))
    except Exception as error:
        message = f"{name} follows from a heuristic, which cannot be computed here ({in_one_line(error)})"
        raise Refusal("bad_signature", message, [name]) from error


def _constant(value):
    """Text like `tl.float32` is that type."""
    import triton.language as tl

    if isinstance(value, str) and value.startswith("tl."):
        return getattr(tl, value[3:], value)
    return tuple(value) if isinstance(value, list) else value
