"""Source rewrites with libcst: each finds its sites in what was observed, and turns one into new file contents.

Every rewriter module has `find(observation) -> list[Site]` and `rewrite(tree, site) -> dict[path, text]`. A rewrite
that is not sure raises `CannotRewrite` with the reason: a program that is left alone is never wrong. Formatting and
comments of what is not rewritten stay as they are.
"""

from __future__ import annotations


class CannotRewrite(Exception):
    """Why a site is left alone; one line for a person."""
