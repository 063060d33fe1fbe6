"""What Triton's compiler makes of a kernel for AMD architectures, read without a GPU."""
