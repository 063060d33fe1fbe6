"""The GPUs of this machine: which there are, what a process needs to use one, and who is timing on it.

Reads the kernel's own files only; knows no ROCm or CUDA tool, no provider and no command.
"""
