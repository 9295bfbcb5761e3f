"""HTTP itself: bodies, limits, keys, security headers, and the bridge to Django."""
