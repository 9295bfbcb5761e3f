"""Views of rules and suggestions."""
