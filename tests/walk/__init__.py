"""Every page, met as a stranger meets it."""
