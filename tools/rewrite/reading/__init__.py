"""Reading source: a file with its edits, what a node is, what a name holds, and who shares memory with whom.

Nothing here knows what a rewriter is for.
"""
