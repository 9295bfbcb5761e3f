"""MCP messages on the wire: JSON-RPC, server-sent events, HTTP to upstream servers."""
