"""Actions that write the audit log, and send it to other systems."""
