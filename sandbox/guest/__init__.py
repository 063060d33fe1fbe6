"""The code that runs inside a sandbox: standard library, torch and triton only.

It is copied read-only to its own place and imported there as `_ratchet_guest`, so that it neither shadows
nor is shadowed by a module of the target. On the host only its torch-free modules (`wire`, `tensor_file`) are imported.
"""
