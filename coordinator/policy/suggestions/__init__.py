"""Suggested rules, found in recorded calls."""
