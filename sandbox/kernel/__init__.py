"""What the kernel tells about processes and lets us do to them. Knows no command, no channel and no provider."""
