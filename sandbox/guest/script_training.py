"""The declared form of a script that trains, written out as far as its first call tells."""

from __future__ import annotations

import inspect

import torch

from .script_values import PLAIN, Tensor, parts_of

FORM = """\
    import torch
    {imports}

    mode = "training"


    def build():
        torch.manual_seed(0)
        return {name}(...){device}  # as the script makes it


    def inputs(seed):
        generator = torch.Generator().manual_seed(seed)
        return {inputs}
"""
SHARED = "from {module} import {name}"
OWN = "# {name} is the script's own: copy it here, or move it to a file that both import"


def declaration(call):
    """A file, indented, for the first call of a script's module."""
    cls, arguments = type(call.module), call.arguments
    if any(not name.isdigit() for name in arguments):
        arguments = dict(zip(_names(cls, arguments), arguments.values(), strict=True))
    device = next((str(p.device) for p in call.module.parameters() if p.device.type != "cpu"), "")
    return FORM.format(
        imports=(OWN if cls.__module__ == "__main__" else SHARED).format(module=cls.__module__, name=cls.__name__),
        name=cls.__name__,
        device=f".to({device!r})" if device else "",
        inputs=_text(arguments if any(not name.isdigit() for name in arguments) else tuple(arguments.values())),
    )


def _names(cls, arguments):
    """Of all arguments, by those of `forward`."""
    known = [*inspect.signature(cls.forward).parameters][1:]
    return [known[int(name)] if name.isdigit() and int(name) < len(known) else name for name in arguments]


def _text(value):
    if isinstance(value, Tensor):
        return _tensor(value.looks)
    if isinstance(value, PLAIN):
        return repr(value)
    parts = parts_of(value)
    if parts is None:
        return "..."
    inside = {name: _text(part) for name, part in parts.items()}
    if type(value) is dict:
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in inside.items()) + "}"
    if type(value) is tuple:
        return "(" + ", ".join(inside.values()) + ("," if len(inside) == 1 else "") + ")"
    return f"[{', '.join(inside.values())}]" if type(value) is list else "..."


def _tensor(looks):
    shape, dtype = tuple(looks.shape), "" if looks.dtype in (torch.float32, torch.int64) else f".to({looks.dtype})"
    device = "" if looks.device.type == "cpu" else f".to({str(looks.device)!r})"
    if looks.rows is not None:
        made = f"torch.randint({looks.rows}, {shape}, generator=generator)"
    elif looks.range is not None:
        made = f"torch.randint({looks.range[0]}, {looks.range[1] + 1}, {shape}, generator=generator)"
    elif looks.normal is not None:
        made = f"torch.randn({shape}, generator=generator)"
    else:
        made, dtype = f"torch.zeros({shape}, dtype={looks.dtype})", ""  # it had a pattern, which the script knows
    return made + dtype + device
