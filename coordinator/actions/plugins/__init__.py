"""Actions that write plugins, their settings and permissions."""
