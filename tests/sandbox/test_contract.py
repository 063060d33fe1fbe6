"""What every sandbox provider must hold; where a promise is false, that the provider says so."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.contract import Ended, Limits, Process, ProcessEnded, Sandbox, WouldNotFreeze
from sandbox.errors import SandboxError
from sandbox.kernel import process_tree
from tests.sandbox.attacks.bench import carrying
from tests.sandbox.conftest import until

# a grandchild in a session of its own, whose parent is gone: what escapes a process group and a session
ESCAPE = """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {work}
    os._exit(0)
os.wait()
"""
SLEEPS = "time.sleep(600)"
SPINS = "exec('while True: pass')"
FIRST, *OTHERS = sorted(os.sched_getaffinity(0))


def process_one(sandbox: Sandbox) -> int:
    """Whether process 1 of a command's namespace counts as one of its own: it lives under the command's user."""
    return 1 if sandbox.promises().contained else 0


def ended(process: Process) -> Ended:
    result = until(process.poll)
    assert isinstance(result, Ended)
    return result


def heard(process: Process) -> Any:
    return process.channel.receive(20.0)


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("sys.exit(7)", (7, None, "exited")),
        ("import signal; os.kill(os.getpid(), signal.SIGSEGV)", (None, signal.SIGSEGV, "signal")),
    ],
)
def test_an_end_is_a_result(code: str, end: tuple[int | None, int | None, str], run: Any) -> None:
    result = ended(process := run(code))
    assert (result.status, result.signal, result.reason) == end
    process.freeze()  # nothing happens
    process.thaw()
    assert process.usage().tasks == ()


def test_a_process_that_lets_go_of_its_channel_may_still_say_how_it_ends(run: Any) -> None:
    process = run("channel.close(); import time; time.sleep(0.1); sys.exit(9)")
    process.channel.receive  # noqa: B018 - connected
    with pytest.raises(Exception, match="closed the channel"):
        heard(process)
    assert process.stop().status == 9


def test_nothing_is_open_but_the_standard_descriptors_and_there_is_nothing_to_read(run: Any) -> None:
    code = "channel.send({'open': os.listdir('/proc/self/fd'), 'input': sys.stdin.read()})"
    told = heard(run(code))
    channel_and_listing = 2
    assert len(told["open"]) == 3 + channel_and_listing
    assert told["input"] == ""


def test_stdout_and_stderr_are_kept_together_and_of_much_the_end(run: Any) -> None:
    code = "print('out', flush=True); print('err', file=sys.stderr); sys.stdout.buffer.write(b'\\xff')"
    result = ended(run(code))
    assert (result.output_tail, result.output_bytes) == ("out\nerr\n\N{REPLACEMENT CHARACTER}", 9)
    result = ended(run("print('a' * 200_000, 'the end')"))
    assert (result.output_bytes, len(result.output_tail)) == (200_009, 64 << 10)
    assert result.output_tail.endswith("the end\n")


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        (
            "[os.fork() for _ in range(2)]; held = bytearray(b'x' * (50 << 20)); import time; time.sleep(600)",
            Limits(memory_bytes=150 << 20),
            "memory limit",
        ),
        (
            "held = bytearray(b'x' * (50 << 20)); import time; time.sleep(0.5)",
            Limits(memory_bytes=500 << 20),
            "exited",
        ),
        (
            "import threading, time\nfor _ in range(30): threading.Thread(target=time.sleep, args=(600,)).start()",
            Limits(processes=20),
            "process limit",
        ),
    ],
    ids=["memory of all processes", "memory below the limit", "threads count as processes"],
)
def test_limits_are_of_the_whole_tree(code: str, limits: Limits, reason: str, run: Any) -> None:
    assert ended(run(code, limits=limits)).reason == reason


@pytest.mark.parametrize("frozen", [False, True])
def test_stop_ends_what_left_its_session(frozen: bool, run: Any) -> None:
    mark = f"MARK={secrets.token_hex(8)}"
    process = run(ESCAPE.format(work=SPINS) + "channel.send({}); channel.receive()", env=dict([mark.split("=")]))
    heard(process)
    assert len(carrying(mark)) >= 2
    if frozen:
        process.freeze()
    result = process.stop()
    assert (result.status, result.signal, result.reason) == (None, signal.SIGKILL, "stopped")
    assert result == process.stop() == process.poll() and carrying(mark) == []


def test_a_normal_end_leaves_nothing_behind(run: Any) -> None:
    mark = f"MARK={secrets.token_hex(8)}"
    process = run(ESCAPE.format(work=SLEEPS), env=dict([mark.split("=")]))
    assert ended(process).status == 0
    assert carrying(mark) == []


def test_forking_faster_than_anybody_looks_does_not_help(run: Any, open_folder: Path) -> None:
    """A chain of processes, each in its own session, each ending as soon as it has a child: no look ever finds one."""
    heartbeat = open_folder / "chain" / "heartbeat"
    heartbeat.parent.mkdir()
    chain = f"""
        end = time.monotonic() + 20
        file = os.open({str(heartbeat)!r}, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        while time.monotonic() < end:
            os.write(file, b"x")
            if os.fork() > 0:
                os._exit(0)
            os.setsid()
"""
    process = run(
        ESCAPE.format(work=chain.strip()) + "channel.send({}); channel.receive()", writable=(heartbeat.parent,)
    )
    heard(process)
    time.sleep(0.2)
    beating = heartbeat.stat().st_size
    assert beating > 10
    process.stop()
    last = heartbeat.stat().st_size
    time.sleep(0.2)
    assert heartbeat.stat().st_size == last


def test_a_frozen_tree_uses_no_cpu_time_and_goes_on_when_thawed(run: Any) -> None:
    code = ESCAPE.format(work=SPINS) + "channel.send({})\nwhile True: pass"
    process = run(code)
    heard(process)
    for _ in range(5):
        process.freeze()
        first = process.usage()
        time.sleep(0.1)
        second = process.usage()
        assert second.processes >= 2
        assert all(task.stopped for task in second.tasks)
        assert second.cpu_time_s == first.cpu_time_s
        process.thaw()
        until(lambda used=second.cpu_time_s: process.usage().cpu_time_s > used + 0.02)


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
    heard(process)
    with contextlib.suppress(WouldNotFreeze):
        process.freeze()
        before = sum(process_tree.ran_ns(process.members()).values())
        time.sleep(0.5)
        ran_ns = sum(process_tree.ran_ns(process.members()).values()) - before
        process.thaw()
        assert ran_ns < 1_000_000  # a control group holds it whatever signals come


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
    entered = heard(process)["entered"]
    if sandbox_provider.promises().contained:
        counted = {task.pid for task in process.usage().tasks} == set(process.members())
        assert counted and len(process.members()) == 2
        assert not entered or sandbox_provider.name == "bwrap"


def test_usage_counts_children_that_have_ended(run: Any, sandbox_provider: Sandbox) -> None:
    burn = "end = time.process_time() + 0.3\n        while time.process_time() < end: pass"
    process = run(ESCAPE.format(work=burn) + "time.sleep(0.1)\nchannel.send({}); channel.receive()")
    heard(process)
    until(lambda: process.usage().cpu_time_s >= 0.3)
    until(lambda: process.usage().processes == 1 + process_one(sandbox_provider))
    used = process.usage().cpu_time_s
    process.stop()
    assert process.usage().cpu_time_s >= used


def test_usage_sees_threads_children_and_their_priority_and_pinning_moves_each(
    run: Any, sandbox_provider: Sandbox
) -> None:
    code = "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); os.nice(3)\n"
    code += ESCAPE.format(work=SLEEPS) + "channel.send({}); channel.receive()"
    process = run(code, cpus=(FIRST,))
    heard(process)
    usage, more = process.usage(), process_one(sandbox_provider)
    assert usage.processes == 2 + more
    assert sorted(task.nice for task in usage.tasks) == [0] * more + [0, 3, 3]
    assert {task.policy for task in usage.tasks} == {os.SCHED_OTHER}
    assert not any(task.stopped for task in usage.tasks)
    assert {task.cpus for task in usage.tasks} == {frozenset({FIRST})}
    for cpus in (OTHERS[:1] or [FIRST], [FIRST, *OTHERS[:1]], [FIRST]):
        process.pin(tuple(cpus))
        assert {task.cpus for task in process.usage().tasks} == {frozenset(cpus)}


@pytest.mark.skipif(not OTHERS, reason="one CPU cannot be widened to two")
def test_a_wider_affinity_is_refused_or_seen(run: Any, sandbox_provider: Sandbox) -> None:
    here = (FIRST, *OTHERS)
    widen = f"\ntry: os.sched_setaffinity(0, {set(here)})\nexcept OSError: pass\n"
    process = run(
        ESCAPE.format(work=widen.strip("\n").replace("\n", "\n        ") + "\n        time.sleep(600)")
        + widen
        + "time.sleep(0.2); channel.send({}); channel.receive()",
        cpus=(FIRST,),
    )
    heard(process)
    tasks = process.usage().tasks
    assert len(tasks) == 2 + process_one(sandbox_provider)
    seen = {task.cpus for task in tasks}
    if sandbox_provider.promises().enforced_cpus:
        assert seen == {frozenset({FIRST})}
    else:
        assert frozenset(here) in seen


def test_it_can_talk_to_its_own_children_over_the_loopback_device(run: Any) -> None:
    code = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    socket.create_connection(listener.getsockname()).send(b"child")
    os._exit(0)
channel.send({"said": listener.accept()[0].recv(5).decode()})
"""
    assert heard(run(code)) == {"said": "child"}


def test_what_it_said_before_it_ended_is_heard(run: Any, sandbox_provider: Sandbox) -> None:
    process = run("channel.send({'said': 1})")
    until(process.poll)
    if process._own_uid is None and sandbox_provider.promises().contained:  # nothing tells any more that it was it
        with pytest.raises(ProcessEnded):
            _ = process.channel
    else:
        assert process.channel.receive(5.0) == {"said": 1}


def test_ending_before_connecting_is_told_apart_from_being_slow(run: Any) -> None:
    process = run("raise RuntimeError('too early')", connects=False)
    with pytest.raises(ProcessEnded) as caught:
        _ = process.channel
    assert caught.value.ended.status == 1
    assert "too early" in caught.value.ended.output_tail


def test_a_broken_working_directory_is_an_error_of_starting(run: Any, tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        run("pass", cwd=tmp_path / "missing")


def test_a_process_outlives_the_thread_that_started_it_and_answers_unless_it_is_frozen(run: Any) -> None:
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(run("while True: channel.send(channel.receive())")))
    thread.start()
    thread.join()
    (process,) = started
    for n in range(5):
        process.channel.send({"n": n})
        assert heard(process) == {"n": n}
        time.sleep(0.05)
    assert process.poll() is None
    process.freeze()  # frozen, it does not answer
    process.channel.send({"n": 5})
    with pytest.raises(TimeoutError):
        process.channel.receive(0.2)
    process.thaw()
    assert heard(process) == {"n": 5}


def test_it_never_promises_containment_it_has_not(sandbox_provider: Sandbox) -> None:
    promises = sandbox_provider.promises()
    assert promises.contained or any("not containment" in note for note in promises.notes)
