"""Actions that write sessions, their events and notes."""
