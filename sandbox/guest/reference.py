"""The reference: a worker on the pristine tree that also makes inputs, states and higher precision.

It never sees a candidate's code. It is frozen, or has ended, while anything is timed.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import os
import platform
import re
import shutil
import sys
import sysconfig
from importlib import metadata

import torch

from . import states, tensors, tf32, values, workload
from .lookups import Lookups, is_integer, named_by
from .worker import Worker

CONSTANT_SEED = 20_011


class Reference(Worker):
    rows = None  # by phase: (number of a tensor, how many rows there are of what it looks up)
    own = ()  # floating-point types of the model, before it was widened
    rounding = contextlib.nullcontext()  # around each call in a wider type
    is_shaken = False  # whether states and inputs are moved by rounding
    coarse = False  # whether the floating-point results in the target's own precision have 16 bits

    def op_describe(self, recipe=None, rows=None):
        """What the entry declares, for the host to plan with; `recipe` is that of an observed script, and `rows` what
        `lookups` found, where known.
        """
        found = self._read(recipe)
        self.rows = rows
        cases = []
        for case in found.cases():
            work = found.phase_value(case["phase"], "work")
            cases.append({**case, "work": dict(_work(work, case["shape"])) if work else {}})
        names = ("outputs", "compare", "tolerance", "constants", "state", "reset", "shapes")
        return {
            "form": found.form,
            "mode": found.mode,
            "cases": cases,
            "declares": [name for name in names if found.optional(name)],
            "constants": list(found.optional("constants")() if found.optional("constants") else ()),
            "tolerance": dict(found.optional("tolerance")() or {}) if found.optional("tolerance") else {},
            "environment": environment(),
            "recipe": found.recipe,
            "notes": found.notes(),
        }

    def op_lookups(self):
        """[[number of a staged tensor, rows of what it looks up]]."""
        flat, found = self.staged[1], {}
        integers = [number for number, tensor in enumerate(flat) if tensors.is_plain(tensor) and is_integer(tensor)]

        def looked_up(index, rows):
            for at in named_by(index, [flat[number] for number in integers]):
                found[integers[at]] = min(rows, found.get(integers[at], rows))

        with Lookups(looked_up), workload.guarded("call_raised", self.tree):
            self._outcome()
        self.rows = {**(self.rows or {}), self.phase: [*found.items()]}
        return {"rows": [*found.items()]}

    def op_save_init(self, path):
        init = self.workload.init_inputs()
        if init is not None:
            tensors.save_flat(path, *tensors.given(init, of=" of Model"))
        return {"saved": init is not None}

    def op_draw(self, seeds, phase="", shape=None, variant="", keys=None):
        """Write fresh arguments to each path for its seed, sealed if it has a key. Constant arguments come from one
        fixed seed. Says whether a variant leaves them the same. Raises: WorkloadProblem where one cannot be handed
        over.
        """
        constants = self.workload.optional("constants")
        fixed = self.workload.inputs(phase, shape or {}, CONSTANT_SEED) if constants else None
        same = True
        for path, seed in seeds.items():
            structure, flat = usual = tensors.given(self._drawn(phase, shape or {}, seed, fixed))
            if variant:
                if values.OTHER_CONSTANTS in variant:
                    structure, flat = tensors.given(self.workload.inputs(phase, shape or {}, seed))
                structure, flat = values.varied(variant, structure, flat, seed, dict((self.rows or {}).get(phase, ())))
                same = same and not values.is_varied(*usual, structure, flat)
            tensors.save_flat(path, structure, flat, key=(keys or {}).get(path))
        return {"same": same}

    def _drawn(self, phase, shape, seed, fixed):
        drawn = self.workload.inputs(phase, shape, seed)
        constants = self.workload.optional("constants")
        if constants:
            for name in constants():
                if isinstance(drawn, dict):
                    drawn |= {name: fixed[name]} if name in drawn else {}
                else:
                    drawn = (*drawn[:name], fixed[name], *drawn[name + 1 :])
        return drawn

    def op_second_state(self, path, anew=True, turned=False):
        """A different checkpoint of the same model, see `states.another`."""
        buffers = {name for name, _ in self.built.named_buffers()}
        tensors.save(path, states.another(self.built.state_dict(), buffers, anew, turned))

    def op_strengthen(self, path):
        """Write a state dict in which what has next to no effect has more, and say what has none."""
        with workload.guarded("call_raised", self.tree):
            measured = states.effects(self.built, self._outcome)
        tensors.save(path, states.strengthened(self.built.state_dict(), measured))
        return {"without_effect": [name for name, effect in measured.items() if effect == 0]}

    def _outcome(self):
        """The tensors that a call answers with."""
        self._reset()
        self._start()
        return self.result[1]

    def op_tf32(self):
        """Whether the target's settings allow it for anything, and the model that was widened is one of float32."""
        return {"allowed": bool(tf32.allowed()) and self.own == (torch.float32,)}

    def op_precision(self, name="", how=""):
        """Build again in a wider floating-point type; inputs and states staged from now on follow. The model that was
        there is gone before, so that both never need room at once. `how`: "tf32" with operands as rounded as they may
        be; "shaken" in the target's own type, with all that goes into it moved by rounding.
        """
        self.op_release()
        self.op_build(self.mode)
        self.is_shaken, self.precision = how == "shaken", None
        self.workload.is_wide = not self.is_shaken
        if self.is_shaken:
            return
        if not isinstance(self.built, torch.nn.Module):
            raise workload.WorkloadProblem("no_precision", "the callable is no module, so it cannot be widened")
        self.own = (*{t.dtype for t in self.built.state_dict().values() if t.is_floating_point()},)
        self.precision = getattr(torch, name)
        self.rounding = tf32.Rounding(tf32.allowed()) if how == "tf32" else contextlib.nullcontext()
        self._widen()

    def op_load_state(self, path):
        super().op_load_state(path)
        self._shake_weights()

    def op_transform(self, name, seed=0):
        super().op_transform(name, seed)
        self._shake_weights()

    def _shake_weights(self):
        if self.is_shaken and isinstance(self.built, torch.nn.Module):
            states.shake(self.built.parameters())

    def op_stage(self, *given, **how):
        super().op_stage(*given, **how)
        if self.is_shaken:
            states.shake(self.staged[1] or tensors.flatten(self.arguments, once=True)[1])

    def _widen(self):
        """What is complex is taken out meanwhile: `to` would keep its real part only."""
        aside = [
            (held, name, tensor)
            for module in self.built.modules()
            for held in (module._parameters, module._buffers)
            for name, tensor in held.items()
            if tensor is not None and tensor.is_complex()
        ]
        for held, name, _ in aside:
            held[name] = None
        self.built.to(self.precision)
        for held, name, tensor in aside:
            tensor.data = self._cast(tensor.data)
            held[name] = tensor
        self._note_parameters()

    def _start(self):
        with self.rounding if self.precision else contextlib.nullcontext():
            super()._start()

    def op_save(self, path, most=0, rows=None):
        """As a worker does; of tensors above `most` bytes, 0 for no limit, secretly chosen rows alone, which are the
        answer, or these `rows`: see `tensors.save_flat`. Of 16-bit results the wide ones are saved in 32 bits, which
        is exact enough for the judge and half of what is written and read.
        """
        structure, flat = self.result
        chosen = tensors.some_rows(flat, most) if rows is None else rows
        if not self.precision:
            self.coarse = all(t.element_size() <= 2 for t in flat if t.is_floating_point())
        elif self.coarse:
            flat = [t.to(torch.float32) if t.is_floating_point() else t for t in flat]
        tensors.save_flat(path, structure, flat, borrowed=self._borrowed(), rows=chosen)
        return {"rows": chosen}

    def op_save_state(self, path, buffers=False):
        """`buffers`: without the parameters, which are most of it."""
        without = {name for name, _ in self.built.named_parameters(remove_duplicate=False)} if buffers else ()
        tensors.save(path, {name: t for name, t in self.built.state_dict().items() if name not in without})

    def op_release(self):
        """Let go of the model and of all that it returned, so that another worker has the device to itself."""
        self.built = None
        self._forget_calls()
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def op_select(self, source, path, phase=""):
        """Apply the entry's `outputs` to a saved result."""
        outputs = self.workload.phase_value(phase, "outputs")
        result = tensors.load(source)
        with workload.guarded("outputs_raised", self.tree):
            tensors.save(path, outputs(result))

    def op_compare(self, candidate, reference, phase=""):
        """Ask the entry's `compare` about two saved results."""
        compare = self.workload.phase_value(phase, "compare")
        with workload.guarded("compare_raised", self.tree):
            answer = compare(tensors.load(candidate), tensors.load(reference))
        passed, message = answer if isinstance(answer, tuple) else (answer, "")
        return {"passed": bool(passed), "message": str(message)[:2000]}


def _work(work, shape):
    try:
        return work(**shape)
    except TypeError:
        return work()


def environment():
    """Versions and hardware as torch tells them; read on the host's behalf, never used as evidence."""
    found = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "machine": platform.machine(),
        "device": workload.device(),
        "cpp_compiler": any(map(shutil.which, ("c++", "g++", "clang++"))),
        "library_bytecode": _has_bytecode(torch.__file__),
        **rocm_versions(),
        "installed": sorted({*map(sysconfig.get_path, ("purelib", "platlib")), _folder_of(_folder_of(torch.__file__))}),
        **{name: _version(name) for name in ("triton", "transformers", "aiter", "vllm", "flash_attn")},
    }
    if found["device"] == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found["gpu_name"] = properties.name
        found["gpu_count"] = torch.cuda.device_count()
        found["gfx"] = properties.gcnArchName.split(":")[0] if torch.version.hip else None
        found["compute_units"] = properties.multi_processor_count
        found["gpu_memory_bytes"] = properties.total_memory
    return found


def _folder_of(path):
    return os.path.dirname(os.path.abspath(path))


def _version(package):
    try:
        return metadata.version(package)
    except ImportError:
        return None


def _has_bytecode(file):
    """Whether a module's bytecode lies beside it; where it does not, every process that may not write compiles it."""
    folder, name = os.path.split(file)
    tag = sys.implementation.cache_tag
    return os.path.exists(os.path.join(folder, "__pycache__", name.removesuffix(".py") + f".{tag}.pyc"))


def rocm_versions(root=None):
    """{"rocm", "llvm", "hipblaslt"} by the files of the installation `root` ($ROCM_PATH or /opt/rocm); None for what is
    not there, as beside wheels that bring ROCm's libraries along.
    """
    root = root or os.environ.get("ROCM_PATH") or "/opt/rocm"
    try:
        with open(os.path.join(root, ".info", "version"), encoding="ascii", errors="replace") as file:
            version = file.readline().strip() or None
    except OSError:
        version = None
    return {
        "rocm": version,
        "llvm": _last(root, "lib/llvm/lib/clang/*", r"(\d[\d.]*)$") or _last(root, "llvm/lib/clang/*", r"(\d[\d.]*)$"),
        "hipblaslt": _last(root, "lib/libhipblaslt.so.*", r"\.so\.(\d[\d.]*)$"),
    }


def _last(root, pattern, number):
    """The most precise number that the names of the files tell."""
    names = [os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(root), pattern))]
    found = [match[1] for match in (re.search(number, name) for name in names) if match]
    return max(found, key=len, default=None)
