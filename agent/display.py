"""What is being judged at the moment, for whoever watches the run."""

from __future__ import annotations

from dataclasses import dataclass

from agent.reporting.progress import Judging, Progress


@dataclass
class Display:
    progress: Progress
    subject: str = ""

    def say(self, phase: str, done: int = 0, of: int = 0) -> None:
        self.progress.emit(Judging(self.subject, phase, done, of))
