"""Writing chat messages and attachments."""
