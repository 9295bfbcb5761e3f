"""The search across all sessions, and the page of what agents did to a file."""
