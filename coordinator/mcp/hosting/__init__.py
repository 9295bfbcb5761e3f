"""Stdio MCP servers for the gateway: one process for the machine starts, watches and stops them."""
