"""Agent Skills packs: Markdown and kernel templates, read as data with `importlib.resources.files("skills")`.

Holds no code of ours; this file only makes the folder part of an installed distribution.
"""
