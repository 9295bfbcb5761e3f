"""Writing sessions, their events and notes."""
