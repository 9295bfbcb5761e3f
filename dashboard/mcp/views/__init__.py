"""Views of MCP servers and grants."""
