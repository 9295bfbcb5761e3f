"""Writing the audit log, and sending it to other places."""
