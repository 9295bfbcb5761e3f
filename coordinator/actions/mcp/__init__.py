"""Actions that write MCP servers, their tools, credentials and gateway calls."""
