"""An MCP server with everything that the official conformance suite asks for."""
