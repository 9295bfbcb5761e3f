"""Actions that write chat messages and attachments."""
