"""Writing MCP servers, their tools, credentials and gateway calls."""
