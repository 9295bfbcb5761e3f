"""The audit log's pages."""
