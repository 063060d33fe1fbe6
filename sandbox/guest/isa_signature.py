"""Types and constants of a kernel, from its annotations and from a JSON file, which has the last word.

    x_ptr: "*bf16:16"           a pointer; also without the 16 it counts as divisible by it, as torch allocates
    n: "i32:16"  n: "i32:1"     an integer that is divisible by 16; one that is 1, which makes it a constant
    BLOCK: tl.constexpr = 1024  a constant

Triton takes a bare `*bf16` for the type of every launch; with a number behind it, it leaves the annotation alone.

The JSON: {"signature": {name: type, or null for None}, "constexprs": {name: value}, "aligned": [names] in place of all
pointers, "large": [names of tensors above 2 GiB], "values": {name: number} for heuristics, "num_warps": 4, ...}.
Does not guess a type or a constant: what is missing is said by name. The host has checked the keys.
"""

import re

from .isa_driver import OPTIONS, Variant
from .isa_kernels import Refusal, in_one_line

_TYPES = {"i1", "u1", "bf16", "fp16", "fp32", "fp64", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16"}
_TYPES |= {f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)}
_FORM = re.compile(r"(const )?(\**)(k?)(?:tl\.|torch\.)?(\w+)(?::(16|1))?")


def variants(kernel, given, every_config):
    """One for each configuration of the autotuner, or the first alone. Raises: Refusal."""
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
    types = given.get("signature", {})
    signature, constants, known, missing = {}, {}, {}, []
    values = {p.name: p.default for p in kernel.jit.params if p.has_default}  # what a heuristic gets
    values.update(tuned, **given.get("values", {}))
    for number, parameter in enumerate(kernel.jit.params):
        name, path = parameter.name, (number,)
        if parameter.is_constexpr or name in tuned or types.get(name, "") is None:
            signature[name] = "constexpr"
            if name in tuned or name in types:
                constants[path] = _constant(tuned.get(name))
            elif name in kernel.heuristics:
                constants[path] = values[name] = _computed(kernel, name, values)
            elif parameter.has_default:
                constants[path] = parameter.default
            else:
                missing.append(name)
            continue
        kind, hint = _type(types.get(name) or parameter._param.annotation, parameter)
        if kind is None:
            missing.append(name)
        elif hint == "1":
            signature[name], constants[path] = "constexpr", 1
        else:
            signature[name] = kind
            if letters := _known(name, kind, hint, given):
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
    if match := _FORM.fullmatch(str(said).strip("'\" ")):
        const, stars, k, name, hint = match.groups()
        kind = _short(name)
        if kind not in _TYPES and k == "" and name.startswith("k"):
            k, kind = "k", _short(name[1:])
        if kind in _TYPES:
            return stars + ("k" if stars and (const or k) else "") + kind, hint or ""
    return (parameter.annotation_type or None) if said is parameter._param.annotation else None, ""


def _short(name):
    from triton._utils import type_canonicalisation_dict

    if name in ("bool", "int1"):
        return "i1"
    return name if name in _TYPES else {"f16": "fp16", "f32": "fp32"}.get(name, type_canonicalisation_dict.get(name))


def _known(name, kind, hint, given):
    from triton import knobs

    aligned = given.get("aligned")
    letters = ""
    if hint == "16" or (kind.startswith("*") if aligned is None else name in aligned):
        letters += "D"
    if kind.startswith("*") and knobs.amd.use_buffer_ops and name not in given.get("large", ()):
        letters += "S"
    return letters


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
