"""The MCP gateway's endpoints: what an agent sends to its servers, judged, held, passed on and recorded."""
