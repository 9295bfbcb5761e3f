"""Starting programs of others without Signalbox's rights."""
