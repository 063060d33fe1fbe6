"""The judge: is a change right, and is it faster? See docs/judging.md.

In the order in which to read it:

    the rules       script.py (what is asked), accuracy.py and correctness.py (what is right), comparison.py (what was
                    timed), accept.py (what is faster), verdict.py
    one candidate   referee.py, check.py, measure.py, clock.py, plan.py, long_use.py, timed_outputs.py
    tripwires       agreement.py, grounds.py, digest.py, own_tests.py
    the problem     inspection.py, asking.py, imposters.py, workload.py, described.py, inputs.py
    the machinery   open_referee.py, worker.py, folders.py, taking.py, tensors.py, disk.py, cores.py, toolchain.py,
                    device_health.py, device_state.py, recorded_clock.py

The rules read bytes and numbers only: they start no process and write no file.
"""
