"""What each list can be narrowed by, one module a subject."""
