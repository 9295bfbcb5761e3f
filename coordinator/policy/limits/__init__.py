"""Brakes and budgets."""
