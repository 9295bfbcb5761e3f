"""Rules over calls, and the marks on cards."""
