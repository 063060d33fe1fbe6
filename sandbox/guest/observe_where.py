"""Where something happens: frames, classes and modules, as places in the target or in third-party code.

Frames of torch, of the standard library and of the guest are no places: nobody rewrites those.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig

import torch

MAX_FRAMES = 6
OURS = "ratchet_ops"
MAX_PATHS = 64
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


class Where:
    def __init__(self, tree, built):
        self.root = os.path.realpath(tree) + os.sep
        self._files, self._classes = {}, {}
        self._known = {}  # place of a code -> (the place, its description)
        self._skipped = [
            os.path.dirname(os.path.realpath(torch.__file__)) + os.sep,
            os.path.dirname(os.path.realpath(__file__)) + os.sep,
        ]
        self._standard = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep
        self.modules = {}  # id -> (path, module)
        if isinstance(built, torch.nn.Module):
            self.add_modules(built)

    # -- modules

    def add_modules(self, root, name=""):
        """Remember the paths below a module; a module in several places keeps its first."""
        for path, module in root.named_modules():
            self.modules.setdefault(id(module), (".".join(p for p in (name, path) if p), module))

    def path(self, module):
        if id(module) not in self.modules:
            self.add_modules(module, type(module).__name__)
        return self.modules[id(module)][0]

    def below(self, module, owner):
        """The path of a module in another one, as its source would name it; empty where it is in none of its own."""
        path, above = self.path(module), self.path(owner)
        return path.removeprefix(above).removeprefix(".") if path.startswith(f"{above}." if above else "") else ""

    # -- files

    def file(self, name):
        """(path, third_party) of a source file, None for one that is no place."""
        if name not in self._files:
            self._files[name] = self._locate(name)
        return self._files[name]

    def _locate(self, name):
        if not name or name.startswith("<"):
            return None
        real = os.path.realpath(name)
        if OURS in real.split(os.sep):
            return None  # what an accepted change brought along: whoever calls it is the place
        if real.startswith(self.root):
            return real[len(self.root) :], False
        if any(real.startswith(s) for s in self._skipped):
            return None
        if real.startswith(self._standard) and "-packages" not in real:
            return None
        return real, True

    # -- frames

    def frames(self, depth=2):
        """((place, line), ...) of the frames that are places, innermost first.

        A place is (file, first line, name) of its code, one object for each: code objects compare without their files.
        """
        found, frame = [], sys._getframe(depth)
        while frame is not None and len(found) < MAX_FRAMES:
            code = frame.f_code
            place = code.co_filename, code.co_firstlineno, code.co_name
            known = self._known.get(place)
            if known is None:
                known = self._known[place] = place, self._describe_code(frame)
            if known[1]:
                found.append((known[0], frame.f_lineno))
            frame = frame.f_back
        return tuple(found)

    def _describe_code(self, frame):
        code, place = frame.f_code, self.file(frame.f_code.co_filename)
        if place is None or code.co_name.startswith("<"):
            return {}
        owner = frame.f_locals.get("self")
        is_module = isinstance(owner, torch.nn.Module)
        return {
            "file": place[0],
            "third_party": place[1],
            "function": code.co_name,
            "first_line": code.co_firstlineno,
            "module": frame.f_globals.get("__name__", ""),
            "class": type(owner).__qualname__ if is_module else "",
            "plain_attributes": plain_attributes(owner) if is_module else [],
            "plain_parameters": _plain_parameters(frame),
        }

    def describe_frames(self, frames):
        return [{**self._known[place][1], "line": line} for place, line in frames]

    # -- classes

    def describe_class(self, cls):
        if cls not in self._classes:
            self._classes[cls] = self._class(cls)
        return self._classes[cls]

    def _class(self, cls):
        found = {"class": cls.__qualname__, "module": cls.__module__, "file": "", "line": 0, "line_end": 0}
        try:
            name = inspect.getsourcefile(cls)
            lines, first = inspect.getsourcelines(cls)
        except (OSError, TypeError):
            return {**found, "third_party": True}
        place = self.file(name)
        if place is None:
            return {**found, "third_party": True}
        return {**found, "file": place[0], "third_party": place[1], "line": first, "line_end": first + len(lines) - 1}

    def describe_callable(self, built, called):
        """What is built, and the outermost classes of the target's own in what is `called` of it."""
        if not isinstance(built, torch.nn.Module):
            code = getattr(inspect.unwrap(built), "__code__", None)
            place = self.file(code.co_filename) if code else None
            return {
                "is_module": False,
                "class": getattr(built, "__qualname__", type(built).__qualname__),
                "module": getattr(built, "__module__", "") or "",
                "file": place[0] if place else "",
                "third_party": place[1] if place else True,
                "line": code.co_firstlineno if code else 0,
                "line_end": code.co_firstlineno if code else 0,
                "outermost": [],
            }
        return {"is_module": True, **self.describe_class(type(built)), "outermost": self._outermost(called)}

    def _outermost(self, called):
        found, level = {}, [*called]
        while level:
            module, method = level.pop(0)
            own = self.describe_class(type(module))
            if own["third_party"]:
                level += [(child, "") for child in module.children()]
                continue
            row = found.setdefault(own["class"], {**own, "path": self.path(module), "methods": []})
            if method not in row["methods"]:
                row["methods"].append(method)
        return [*found.values()][:MAX_PATHS]


def _plain_parameters(frame):
    """Names of arguments that hold plain values as the function is first seen, perhaps of later calls others."""
    code, held = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [name for name in names if name in held and isinstance(held[name], _PLAIN)]


def plain_attributes(owner):
    """Names of attributes that hold plain values, one level into configuration objects: "eps", "config.hidden_size"."""
    found = []
    for name, value in vars(owner).items():
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, _PLAIN):
            found.append(name)
        elif hasattr(value, "__dict__") and not isinstance(value, (torch.nn.Module, torch.Tensor, type)):
            found += [f"{name}.{n}" for n, v in vars(value).items() if isinstance(v, _PLAIN) and n[:1] != "_"]
    return sorted(found)[:200]
