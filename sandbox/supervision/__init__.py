"""One command under a supervisor: started, watched, ended with all its children, on record for a later agent.

The providers share it.
"""
