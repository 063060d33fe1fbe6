"""What a person or a program is told: progress while a run goes on, the report when it ends."""
