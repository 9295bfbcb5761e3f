"""Sessions whose agents a runner drives."""
