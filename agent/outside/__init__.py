"""A run that an agent outside of it drives, with the tools of a run, over MCP. Only `server.py` imports mcp."""
