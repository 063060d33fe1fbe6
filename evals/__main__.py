"""`python -m evals`: the same as the `evals` command."""

from __future__ import annotations

import sys

from evals.cli import main

if __name__ == "__main__":
    sys.exit(main())
