"""One way to compile a kernel: types, constants, what is known of the arguments, and options."""

import contextlib
from dataclasses import dataclass, field

from . import isa_driver

# what a launch may say to the AMD backend; others are for other devices or follow from these
OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "schedule_hint",
    "allow_flush_denorm",
    "enable_fp_fusion",
    "llvm_fn_attrs",
    "wgp_cu_mode",
)
_DIVISIBLE = ["tt.divisibility", 16]
LONGEST = 80  # characters of one constant


@dataclass
class Variant:
    jit: object
    signature: dict  # parameter -> type
    constants: dict  # path into the arguments -> value
    known: dict  # path -> letters of Triton's: D divisible by 16, S within 2 GiB; or its attributes
    options: dict
    config: str = ""  # which of an autotuner's it is
    notes: list = field(default_factory=list)

    def compile(self, target):
        import triton
        from triton.compiler import ASTSource

        gpu_target = isa_driver.gpu_target(target)
        backend = triton.compiler.make_backend(gpu_target)
        attributes = {
            path: backend.parse_attr(known) if isinstance(known, str) else known for path, known in self.known.items()
        }
        source = ASTSource(self.jit, dict(self.signature), dict(self.constants), attributes)
        with contextlib.redirect_stdout(None):
            return triton.compile(source, target=gpu_target, options=dict(self.options))

    def described(self):
        names = list(self.signature)
        code = self.jit.fn.__code__
        return {
            "kernel": self.jit.fn.__name__,
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "config": self.config,
            "signature": {name: str(kind) for name, kind in self.signature.items()},
            "aligned": [names[path[0]] for path, known in self.known.items() if "D" in known or _DIVISIBLE in known],
            "constants": {
                names[path[0]] + "".join(f"[{part}]" for part in path[1:]): _said(value)
                for path, value in self.constants.items()
            },
            "options": {name: _said(value) for name, value in self.options.items()},
            "notes": self.notes,
        }


def _said(value):
    named = getattr(value, "__name__", None) or getattr(value, "name", None)
    return str(named if isinstance(named, str) else value)[:LONGEST]
