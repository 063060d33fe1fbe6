"""Why a kernel file cannot be compiled, in words that the host hands on; never a traceback."""

import re
import traceback

MOST_NAMES = 40
LONGEST = 600  # characters


class Refusal(Exception):
    """`kind` is one of those in `tools/isa/answer.py`; `names` are the kernels or parameters that it is about."""

    def __init__(self, kind, message="", names=()):
        super().__init__(message)
        self.kind, self.message, self.names = kind, message, list(names)

    def said(self):
        return {"kind": self.kind, "message": self.message[:LONGEST], "names": self.names[:MOST_NAMES]}


def in_one_line(error):
    """The type, the place and the reason of an error. A compiler quotes source in between, which is left out."""
    reason, first = error, ""
    while reason is not None:
        lines = [line.strip() for line in str(reason).splitlines() if line.strip(" ^")]
        if lines:
            place = re.match(r"at \d+:\d+", lines[0])
            first = first or (place.group() + ": " if place else "")
            said = f"{type(reason).__name__}: {first}{lines[-1] if place else ' '.join(lines)}"
        else:
            said = type(reason).__name__
        if reason.__cause__ is None:
            break
        reason = reason.__cause__
    return re.sub(r"\s+", " ", said)[:LONGEST]


def place_in(path, error):
    """` (line 12)` of the innermost frame in this file, or nothing."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines.append(error.lineno)
    return f" (line {lines[-1]})" if lines else ""
