"""Metrics and readiness."""
