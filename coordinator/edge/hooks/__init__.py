"""Agents' hooks: authenticated, parsed, decided, recorded, answered."""
