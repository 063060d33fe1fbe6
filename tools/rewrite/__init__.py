"""Source rewrites with libcst: each finds its sites in what was observed, and turns one into new file contents.

Rewriters of places have `find(observation) -> list[Site]` and `rewrite(tree, site) -> dict[path, text]`; `model_class`
and `launches`, which concern all calls, differ. `reading` has what they share: files and their edits (`source`), the
analysis of a function (`analysis`, `memory`, `flow`) and the spellings of operations. A rewrite that is not sure raises
`CannotRewrite` with the reason: a program that is left alone is never wrong. Formatting and comments of what is not
rewritten stay as they are.
"""

from __future__ import annotations


class CannotRewrite(Exception):
    """Why a site is left alone; one line for a person."""
