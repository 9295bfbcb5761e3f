"""The search page, and what happened to a file."""
