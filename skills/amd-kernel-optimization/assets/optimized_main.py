# Ratchet: optimized. Starts a script with the changed copies of library modules in place.
# Copyright the Ratchet authors. Licensed under the Apache License, Version 2.0.
"""`python -m optimized SCRIPT [ARGUMENTS]`, or `python -m optimized -m MODULE [ARGUMENTS]`."""

import runpy
import sys
from pathlib import Path

if len(sys.argv) < 2 or sys.argv[1:] == ["-m"]:
    sys.exit(__doc__)
if sys.argv[1] == "-m":
    sys.argv[:2] = []
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.argv[:1] = []
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
