"""The provider that contains by containers: one for each command, removed when the command has ended."""
