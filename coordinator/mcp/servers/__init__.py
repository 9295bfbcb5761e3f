"""Registered MCP servers: names, tools, credentials, discovery."""
