"""Grants of tools to agents: their lengths, previews and edits."""
