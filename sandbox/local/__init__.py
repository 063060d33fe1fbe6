"""The provider that contains nothing: ordinary processes, with all that the kernel gives freely."""
