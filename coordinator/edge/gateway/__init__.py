"""The MCP gateway's doors: what an agent sends to its servers, judged, held, passed on and recorded."""
