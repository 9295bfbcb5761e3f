"""The HTTP layer: bodies, limits, keys, security headers, and the bridge to Django."""
