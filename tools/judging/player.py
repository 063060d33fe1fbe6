"""Take one built worker through a script of calls, and keep what it saves for the comparison."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.judging.described import Refused, SavedRows
from tools.judging.script import POSITIVE_63, ROUNDS, Call, Case, Draw, Played, Poison, Script, State, Transform
from tools.judging.tensors import Rows
from tools.judging.worker import Worker
from tools.judging.workload import Workload

COMPARED_BYTES = 64 << 20  # of one tensor of an output: of larger ones secretly chosen rows, others in each call


@dataclass
class Player:
    """Of the original's large outputs some rows are saved: those of `like`, or the same of all calls with one input.
    `written` are the steps whose arguments are saved instead of all; then of the state only the buffers are, since
    calls seldom write to parameters. `took` is told what each usual input took when it was new, as long as the model is
    as it was built: seconds, with all that is compiled for it. Not the first after another state dict, for which what
    made constants of its weights has to compile.
    """

    workload: Workload
    worker: Worker
    script: Script
    inputs: Sequence[Path]
    prefix: str  # of the names of what is saved
    like: Played | None = None
    written: Collection[int] | None = None
    took: Callable[[Case, float], None] = lambda case, seconds: None
    _found: Played = field(init=False, default_factory=lambda: Played({}, {}, {}))
    _rows: dict[int, Rows] = field(init=False, default_factory=dict)  # by input

    def play(self) -> Played:
        """It learns each input only when it is its turn. Raises: WorkerFault, what `took` raises."""
        new, new_state = {at for at, draw in enumerate(self.script.draws) if not draw.variant}, False
        for index, step in enumerate(self.script.steps):
            if isinstance(step, State):
                new_state = bool(self._found.outputs)
                self.worker.ask("load_state", path=self.worker.reveal(self.workload.states[step.which]))
            elif isinstance(step, Transform):
                new.clear()
                self.worker.ask("transform", name=step.name, seed=step.seed)
            elif isinstance(step, Poison):
                self.worker.ask("poison")
            else:
                draw = self.script.draws[step.draw]
                self._stage(step, draw)
                if step.asks == "refusal":
                    if self.like is None:  # what is too much in one precision may not be in another
                        self._found.raised[index] = self.worker.ask_for(Refused, "refused").raised
                    continue
                call_s = self._call(index, step, draw)
                self._found.first_call_s = self._found.first_call_s or call_s
                if step.draw in new and not new_state:
                    self.took(draw.case, call_s)
                new, new_state = new - {step.draw}, False
                self._save(index, step)
        if self.workload.states:
            self._found.state = self.worker.saved(f"{self.prefix}.state")
            only: dict[str, Any] = {} if self.written is None else {"buffers": True}
            self.worker.ask("save_state", path=str(self._found.state), **only)
        return self._found

    def _stage(self, step: Call, draw: Draw) -> None:
        how: dict[str, Any] = {"constants": list(self.workload.constants), "phase": draw.case.phase}
        shown = self.worker.reveal(self.inputs[step.draw])
        if step.asks == "threads":  # the other's
            self.worker.ask("stage", path=self.worker.reveal(self.inputs[0]), **how)
        self.worker.ask("stage", path=shown, how=step.how, **how)

    def _call(self, index: int, step: Call, draw: Draw) -> float:
        """Seconds."""
        key = random.SystemRandom().randrange(-POSITIVE_63, POSITIVE_63)
        begun = time.monotonic()
        if step.asks == "threads":
            rounds = 1 if self.worker.role == "reference" else ROUNDS
            reply = self.worker.ask("call_together", key=key, rounds=rounds)
        elif step.asks != "results" or not draw.is_compiled:
            reply = self.worker.ask("call_plainly", key=key, asks=step.asks)
        else:
            reply = self.worker.ask("call", key=key)
        self._found.digests[index] = (key, str(reply.get("digest")))
        return time.monotonic() - begun

    def _save(self, index: int, step: Call) -> None:
        into = self._found.outputs[index] = self.worker.saved(f"{self.prefix}-{index}.out")
        if self.worker.role == "reference":
            most = 0 if self.workload.rules.needs_reference else COMPARED_BYTES
            known = self._rows.get(step.draw) if self.like is None else self.like.rows[index]
            saved = self.worker.ask_for(SavedRows, "save", path=str(into), most=most, rows=known)
            self._rows[step.draw] = self._found.rows[index] = saved.rows
        else:
            self.worker.ask("save", path=str(into))
        if self.written is None or index in self.written:
            arguments = self._found.arguments[index] = self.worker.saved(f"{self.prefix}-{index}.args")
            self.worker.ask("save_arguments", path=str(arguments))
