"""Who may decide which request."""
