"""Servers that come and go: `python -m tests.bench.servers`, and `….beside` for what three are good for."""
