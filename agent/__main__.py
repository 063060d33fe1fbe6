"""`python -m agent`: the same as the `agent` command.

Started this way, Python puts the current folder first on its path: in a folder with its own `agent/`, use
the installed command.
"""

from __future__ import annotations

import sys

from agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
