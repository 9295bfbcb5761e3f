"""The MCP gateway: checks, holds, forwards and records the requests of agents to MCP servers."""
