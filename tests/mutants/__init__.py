"""Faults seeded into what guards decisions, one at a time; the tests named beside each must fail."""
