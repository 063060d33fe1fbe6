"""Diffs: made, read, checked against what they may touch, and applied."""
