"""Tripwires: notice when the target's code replaces clocks, synchronisation, or what the guest itself is made of.

A snapshot of identities is taken before any code of the target is loaded. It is no evidence: code in this process can
hide from it, and nothing that it must not touch is within its reach.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import math
import os
import select
import socket
import sys
import threading
import time

import torch

PACKAGE = __name__.rpartition(".")[0]
NOTHING = "nothing"  # in the place of a hook
_NOT_TRACED = torch._disable_dynamo(len).__code__

# what tells time, waits for the device, or turns a result into a reply; "module or class: names"
_WATCHED = (
    (time, "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns sleep"),
    (torch.cuda, "synchronize current_stream is_available is_initialized Event Stream"),
    (torch.cuda.Event, "record elapsed_time synchronize query wait"),
    (torch.cuda.Stream, "synchronize query wait_stream"),
    (torch.Tensor, "detach contiguous reshape view cpu to copy_ clone fill_ tolist numel element_size data_ptr"),
    (torch.Tensor, "resolve_conj resolve_neg is_contiguous stride untyped_storage bitwise_xor_ random_"),
    (torch.Generator, "manual_seed"),
    (torch, "empty full zeros arange frombuffer empty_strided view_as_real set_grad_enabled Generator"),
    (hashlib, "sha256 shake_256 blake2b"),
    (json, "dumps loads"),
    (json.JSONEncoder, "encode iterencode"),
    (socket.socket, "send recv close"),
    (select, "select"),
    (os, "replace link stat"),
    (builtins, "open isinstance type len getattr setattr"),
)


# libraries that other code in the process uses as well; all that can be called in there
_SHARED = (torch, torch.nn.functional, torch.nn.init, torch.nn.Module, torch.Tensor, torch.linalg, torch.fft, math)


def snapshot():
    """{name: what stands for it now}. Functions written in Python count with their code, which can be exchanged."""
    found = {}
    for holder, names in _WATCHED:
        for name in names.split():
            found[f"{holder.__name__}.{name}"] = _identity(getattr(holder, name, None))
    for holder in _SHARED:
        for name, each in vars(holder).items():
            if callable(each) and name not in ("__init__", "__setstate__"):  # of modules torch.compile replaces those
                found[f"{holder.__name__}.{name}"] = _identity(each)
    for name, cls in vars(torch.nn).items():
        if isinstance(cls, type) and issubclass(cls, torch.nn.Module) and cls is not torch.nn.Module:
            methods = {method: each for method, each in vars(cls).items() if callable(each)}
            found.update({f"torch.nn.{name}.{method}": _identity(each) for method, each in methods.items()})
    found.update({name: _identity(hook or NOTHING) for name, hook in _hooks().items()})
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(PACKAGE):
            found.update(_own(module_name.removeprefix(PACKAGE).lstrip("."), vars(module)))
    return found


def _hooks():
    """Hooks that Python calls while it runs other code."""
    found = {
        "sys.setprofile": sys.getprofile(),
        "sys.settrace": sys.gettrace(),
        "threading.setprofile": threading.getprofile(),
        "threading.settrace": threading.gettrace(),
    }
    monitoring = getattr(sys, "monitoring", None)  # of Python 3.12
    if monitoring is not None:
        found.update({f"sys.monitoring.{number}": monitoring.get_tool(number) for number in range(6)})
    return found


def _own(prefix, members):
    """The functions and classes of the guest."""
    found = {}
    for name, value in list(members.items()):
        if name.startswith("__"):
            continue  # Python's; and what torch.compile puts there for as long as it has code for one of our functions
        if isinstance(value, type) and str(value.__module__).startswith(PACKAGE):
            found.update({f"{prefix}.{name}.{n}": _identity(v) for n, v in vars(value).items() if callable(v)})
        if callable(value):
            found[f"{prefix}.{name}"] = _identity(value)
    return found


def _identity(value):
    """Something that stays the same, and alive, as long as the thing does; also under what torch.compile wraps around
    `torch.manual_seed` when it is first imported.
    """
    while getattr(value, "__code__", None) is _NOT_TRACED:
        value = value.__wrapped__
    return (value, getattr(value, "__code__", None))


def changed(before):
    """Names that stand for something else than in a snapshot."""
    now = snapshot()
    return sorted(
        name
        for name, (value, code) in before.items()
        if now.get(name, (None, None))[0] is not value or now[name][1] is not code
    )
