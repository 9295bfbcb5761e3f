"""Views of sessions."""
