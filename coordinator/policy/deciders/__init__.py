"""Rights to decide requests."""
