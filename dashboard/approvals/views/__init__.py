"""Views of the approvals pages."""
