"""What is frozen stands still, or is told of: a process can have itself continued, and hide in another one."""

from __future__ import annotations

import time
from typing import Any

from sandbox.contract import Sandbox, WouldNotFreeze
from sandbox.kernel import process_tree

CONTINUES_ITSELF = """
import ctypes, signal, struct, time
signal.signal(signal.SIGCONT, lambda *_: None)
libc = ctypes.CDLL(None, use_errno=True)
event = struct.pack("qii48x", 0, signal.SIGCONT, 0)  # sigevent: by a signal, this one
for number in range(1, 400):  # one after the other for two seconds, each wakes it
    timer, due = ctypes.c_void_p(), struct.pack("qqqq", 0, 0, number // 200, number % 200 * 5_000_000)
    if libc.timer_create(1, event, ctypes.byref(timer)) == 0:
        libc.timer_settime(timer, 0, due, None)
channel.send({})
while True:
    pass
"""


def test_a_tree_that_continues_itself_is_told_of(run: Any, sandbox_provider: Sandbox) -> None:
    """Timers of the kernel can send a stopped process the signal that continues it."""
    process = run(CONTINUES_ITSELF)
    process.channel.receive(20.0)
    moved = ""
    try:
        process.freeze()
        before = sum(process_tree.ran_ns(process.members()).values())
        time.sleep(0.5)
        ran_ns = sum(process_tree.ran_ns(process.members()).values()) - before
        process.thaw()
    except WouldNotFreeze as told:
        moved = str(told)
    else:
        assert ran_ns < 1_000_000  # a control group holds it whatever signals come
    assert moved or ran_ns < 1_000_000


ENTERS_PROCESS_ONE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
seize = libc.ptrace(0x4206, 1, 0, 0)
try:
    memory = bool(open("/proc/1/mem", "r+b"))
except OSError:
    memory = False
channel.send({"entered": seize == 0 or memory})
channel.receive()
"""


def test_process_one_is_closed_to_the_command_or_counted_with_it(run: Any, sandbox_provider: Sandbox) -> None:
    """It lives under the command's own user in some providers."""
    process = run(ENTERS_PROCESS_ONE)
    entered = process.channel.receive(20.0)["entered"]
    if sandbox_provider.promises().contained:
        counted = {task.pid for task in process.usage().tasks} == set(process.members())
        assert counted and len(process.members()) == 2
        assert not entered or sandbox_provider.name == "bwrap"
