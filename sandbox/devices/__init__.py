"""The GPUs of this machine: which there are, what a process needs to use one, and who is timing on it.

Reads the kernel's own files; only how busy an NVIDIA GPU is, which they do not tell, `nvidia-smi` is asked. Knows no
provider and no command.
"""
