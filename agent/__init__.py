"""The brain: command line, graph, steps, proposers, ledger and report.

Imports `tools` and `sandbox`, never `evals`; this file imports nothing, because every command pays for it.
"""

__version__ = "0.2.0"
