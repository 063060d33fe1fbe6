"""What the playbook does in each step: candidates from rewrites of the source, driven by what was observed.

One module for each step that proposes. Each answers (candidates, why there are none), and never judges.
"""
