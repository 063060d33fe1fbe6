"""What a step, a model or a person may call: judge, measure, verify, patch, profile.

Imports `sandbox`, never `agent` or `evals`.
"""
