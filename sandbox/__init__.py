"""Where target code runs: one contract (`contract.py`), one module per provider.

Imports nothing from `tools`, `agent` or `evals`.
"""
