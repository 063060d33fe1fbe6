"""Answer the host's requests one by one until it closes the channel.

A request is {"op", "nonce", ...}; the reply carries the same nonce, so that none can be sent in advance. What the
target raises is a reply ("error").
"""

from __future__ import annotations

import errno
import importlib
import os
import traceback

from . import on_device
from .wire import ChannelClosed
from .workload import WorkloadProblem, exit_kind

# how long to poll for the next request before sleeping: waking up is slower and noisier than a fast call
SPIN_S = 0.002


def serve(channel, worker):
    """`worker` has a method `op_<name>` for every request."""
    ours = os.getpid()
    while True:
        try:
            request = channel.receive(spin_s=SPIN_S)
        except ChannelClosed:
            return
        nonce, op = request.pop("nonce"), request.pop("op")
        try:
            reply = getattr(worker, "op_" + op)(**request) or {}
        except WorkloadProblem as problem:
            reply = {"error": {"kind": problem.kind, "message": problem.message, "where": problem.where}}
        except SystemExit as error:
            reply = {"error": {"kind": exit_kind(error), "message": f"sys.exit({error.code!r})", "where": ""}}
        except OSError as error:
            kind = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "guest_raised"
            reply = {"error": {"kind": kind, "message": _text(error), "where": ""}}
        except Exception as error:  # the boundary: whatever a target raises becomes a finding for the host
            reply = {"error": {"kind": "guest_raised", "message": _text(error), "where": ""}}
        if "error" in reply and on_device.has_failed():
            reply["error"]["kind"] = "device_failed"
        if os.getpid() != ours:  # a script has forked, and this is where its child would go on
            os._exit(0)
        reply["nonce"] = nonce
        channel.send(reply)


def _text(error):
    return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-6))[-4000:]


_ROLES = {
    "worker": "worker.Worker",
    "reference": "reference.Reference",
    "observer": "observe.Observer",
    "tuner": "tune.Tuner",
    "profiler": "profiler.Profiler",
    "suite": "suite.Suite",
    "precompile": "precompile.Precompile",
}


def role_class(role):
    """The class that answers in this role: `role_class(role)(tree, entry)`."""
    module, _, name = _ROLES[role].partition(".")
    return getattr(importlib.import_module("." + module, __package__), name)
