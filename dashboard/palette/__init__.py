"""The command palette: pages, actions, sessions, agents and people by a few letters."""
