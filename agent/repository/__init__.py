"""The target's files and their history: the copy that is judged, the stack of commits, and the way back to the user.

Everything that runs git, and everything that reads the target's `.git`, is in this package.
"""
