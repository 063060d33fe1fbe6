"""The GPUs of this machine: which there are, what a process needs to use one, and who is timing on it.

Reads the kernel's own files; what those do not tell of an NVIDIA GPU, `nvidia-smi` is asked. Knows no
provider and no command.
"""
