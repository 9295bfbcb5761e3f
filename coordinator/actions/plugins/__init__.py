"""Writing plugins, their settings and permissions."""
