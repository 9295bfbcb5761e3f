"""Connecting the agents of a machine: their settings, what they were before, and the key. Standard library alone."""
