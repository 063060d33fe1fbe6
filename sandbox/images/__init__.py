"""How container images for targets are made: a Dockerfile for each kind, and what runs in them while they are built.

Data: `sandbox/docker/images.py` reads it, and nothing here is imported by us.
"""
