"""Source rewrites with libcst: each finds its sites in what was observed, and turns one into new file contents.

Rewriters of places have `find(observation) -> list[Site]` and `rewrite(tree, site) -> dict[path, text]`; what wraps or
sets something for all calls (`wrap_calls`, `route_gemm`, `launches`) has names of its own. A rewrite that is not sure
raises `CannotRewrite` with the reason: a program that is left alone is never wrong. Formatting and comments of what is
not rewritten stay as they are.
"""

from __future__ import annotations


class CannotRewrite(Exception):
    """Why a site is left alone; one line for a person."""
