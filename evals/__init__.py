"""Tasks, calibration of the judge, and scores.

Sits above everything: imports `agent`, `tools` and `sandbox`, and none of them imports it.
"""
